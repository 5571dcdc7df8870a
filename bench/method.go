package main

// method says how everything is measured, for the report.
const method = `Every process of a fleet is a process of the operating system: this program, started once more. It has a Redis client and a cache of its own, ` +
	`and shares nothing with the others but one Redis and one database, on the same machine. Each measurement has new processes and an empty Redis.

The database is a process that holds real rows, SQLite by default. A load reads its row, and then its time passes: it returns what was there when it began, as a slow ` +
	`query does. Every load is counted twice, by the loading process in a Redis apart, before it asks, and by the database: when the two differ, that is the row's error.

Commands are counted on the wire, at each connection, for all clients alike. What a client says to set a connection up is not counted. ` +
	`The time that Redis was busy is that of INFO commandstats; what a script calls is in it twice.

Latencies are of the callers, in histograms with three digits. Where reads come at a rate they come whatever the answers do (an open loop): one that is ` +
	`held up holds up no other, and is counted from when it was due, so that nothing is omitted. They are sent every 2 ms, those of a tick together.

The contestants take turns: in every round all of them, each time beginning with another one. A figure is the median of the rounds, with the lowest and the highest. ` +
	`Each contestant has its own defaults, but for what is listed with it. Everything shares this machine's cores, so compare figures of one run with one another, and not with another machine's.`
