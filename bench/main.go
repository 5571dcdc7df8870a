// Bench runs a cache stampede on this machine, with stockade and with what else there is, and leaves a report.
//
//	go run .                                                  a short run of all scenarios, in three minutes
//	go run . -profile full                                    everything, several times: the run behind the README's figures
//	go run . -scenarios cold,S4 -contestants none,stockade    some of it
//	go run . -help                                            all flags
//
// It starts a redis-server of its own when there is one, and processes of its own, and ends them all.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"

	"github.com/stockade-cache/stockade/bench/herd"
	"github.com/stockade-cache/stockade/bench/origin"
	"github.com/stockade-cache/stockade/bench/report"
)

func main() {
	if herd.IsProcess() {
		if err := herd.Serve(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	logging.Disable() // what the client would log, the report says
	o, err := parse(os.Args[1:], os.Stderr)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return
	case err != nil:
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(2)
	}
	if o.readme != "" {
		err = writeReadmes(o.readme)
	} else {
		err = run(ctx, o, os.Stdout)
	}
	switch {
	case ctx.Err() != nil:
		fmt.Fprintln(os.Stderr, "bench: interrupted")
		os.Exit(130)
	case err != nil:
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// options is what the flags say.
type options struct {
	scenarios   []herd.Scenario
	contestants []string // empty: all
	profile     herd.Profile
	profileName string
	redis       string // empty: one of our own
	dsn         string // empty: SQLite
	out         string
	readme      string // the folder of a report; empty: measure
	command     string
}

func parse(args []string, output io.Writer) (options, error) {
	o := options{command: commandLine(args)}
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	flags.SetOutput(output)
	flags.Usage = func() {
		fmt.Fprintln(output, "usage: go run . [flags]")
		flags.PrintDefaults()
		fmt.Fprintln(output, "\nscenarios:")
		for _, s := range herd.Scenarios() {
			fmt.Fprintf(output, "  %-4s %-12s %s\n", s.Number, s.Name, s.Title)
		}
		fmt.Fprintln(output, "contestants:\n  "+strings.Join(herd.Names(), ", "))
	}
	scenarios := flags.String("scenarios", "", "`names` or numbers, with commas between (default: all)")
	contestants := flags.String("contestants", "", "`names`, with commas between (default: all)")
	flags.StringVar(&o.profileName, "profile", "short", "short (three minutes) or full")
	flags.IntVar(&o.profile.Processes, "processes", 0, "processes of a fleet (default: the scenario's)")
	flags.IntVar(&o.profile.Callers, "callers", 0, "concurrent callers of each process (default: the scenario's)")
	flags.IntVar(&o.profile.Rounds, "rounds", 0, "how often everything is measured (default: the scenario's)")
	flags.DurationVar(&o.profile.Load, "load", 0, "how long a query of the database takes (default: the scenario's)")
	flags.DurationVar(&o.profile.Duration, "duration", 0, "of what goes on for a while (default: the scenario's)")
	address := flags.String("redis", "", "`URL` of a Redis server to use, such as redis://localhost:6379; it is never frozen, killed or flushed (default: a redis-server of our own)")
	flags.StringVar(&o.dsn, "dsn", "", "`DSN` of a PostgreSQL database to load from (default: a SQLite file)")
	flags.StringVar(&o.out, "out", filepath.Join("results", time.Now().Format("2006-01-02-1504")), "`folder` for the report")
	flags.StringVar(&o.readme, "readme", "", "measure nothing: have the READMEs quote the report in this `folder`")
	if err := flags.Parse(args); err != nil {
		return options{}, err
	}
	if flags.NArg() > 0 {
		return options{}, fmt.Errorf("unexpected argument %q", flags.Arg(0))
	}
	switch o.profileName {
	case "short":
	case "full":
		o.profile.Full = true
	default:
		return options{}, fmt.Errorf("-profile is %q: want short or full", o.profileName)
	}
	switch p := o.profile; {
	case p.Processes < 0 || p.Processes > 64:
		return options{}, fmt.Errorf("-processes is %d: want 1 to 64", p.Processes)
	case p.Callers < 0 || p.Callers > 10_000:
		return options{}, fmt.Errorf("-callers is %d: want 1 to 10000", p.Callers)
	case p.Rounds < 0 || p.Rounds > 100:
		return options{}, fmt.Errorf("-rounds is %d: want 1 to 100", p.Rounds)
	case p.Load < 0 || p.Load > 10*time.Second || p.Load%time.Millisecond != 0:
		return options{}, fmt.Errorf("-load is %v: want whole milliseconds up to 10s", p.Load)
	case p.Duration < 0 || p.Duration > time.Minute:
		return options{}, fmt.Errorf("-duration is %v: want up to 1m", p.Duration)
	}
	var err error
	if o.scenarios, err = herd.Find(list(*scenarios)); err != nil {
		return options{}, err
	}
	if o.contestants, err = known(list(*contestants)); err != nil {
		return options{}, err
	}
	if *address != "" {
		server, err := redis.ParseURL(*address)
		if err != nil {
			return options{}, fmt.Errorf("-redis is %q: want redis://host:port (%v)", *address, err)
		}
		if server.Password != "" || server.Username != "" || server.DB != 0 || server.TLSConfig != nil || server.Network == "unix" {
			return options{}, errors.New("-redis: not every contestant is given a password, TLS, a database number or a socket here: want redis://host:port")
		}
		o.redis = server.Addr
	}
	return o, nil
}

// commandLine is what the report says was run. A DSN may hold a password.
func commandLine(args []string) string {
	line := []string{"go run ."}
	for i, arg := range args {
		name, _, joined := strings.Cut(arg, "=")
		switch isDSN := strings.TrimLeft(name, "-") == "dsn" && strings.HasPrefix(arg, "-"); {
		case isDSN && joined:
			line = append(line, "-dsn=...")
		case i > 0 && (args[i-1] == "-dsn" || args[i-1] == "--dsn"):
			line = append(line, "...")
		default:
			line = append(line, arg)
		}
	}
	return strings.Join(line, " ")
}

func list(text string) []string {
	return strings.FieldsFunc(text, func(r rune) bool { return r == ',' })
}

// known returns the names trimmed, each of a contestant.
func known(names []string) ([]string, error) {
	all := herd.Names()
	for i, name := range names {
		names[i] = strings.TrimSpace(name)
		if !slices.Contains(all, names[i]) {
			return nil, fmt.Errorf("no contestant is called %q: there are %s", names[i], strings.Join(all, ", "))
		}
	}
	return names, nil
}

// run measures, prints the tables and writes the report. What was measured before an interruption is reported, too.
func run(ctx context.Context, o options, stdout io.Writer) (err error) {
	dir, err := os.MkdirTemp("", "stockade-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	server, err := openRedis(ctx, o.redis, dir)
	if err != nil {
		return err
	}
	defer server.Close()
	database, err := origin.Open(ctx, o.dsn, dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, database.Close()) }()
	bench, err := herd.NewBench(server, database)
	if err != nil {
		return err
	}
	defer bench.Close()

	r := &report.Report{
		Started: time.Now(), Command: o.command, Profile: o.profileName, Method: method,
		Machine: machine(server.Version(ctx), database.Name()),
	}
	progress := newProgress(stdout, herd.Count(o.scenarios, o.profile, o.contestants))
	measuring := bench.Run(ctx, o.scenarios, o.profile, o.contestants, progress.tell, func(s report.Scenario) error {
		r.Scenarios = append(r.Scenarios, s)
		r.Took, r.Peers = time.Since(r.Started), bench.Peers()
		return r.Write(o.out) // each time: a long run may end early
	})
	progress.end()
	if err := r.Text(stdout); err != nil {
		return errors.Join(measuring, err)
	}
	fmt.Fprintf(stdout, "\nthe report is %s\n", filepath.Join(o.out, "index.html"))
	return measuring
}

func openRedis(ctx context.Context, addr, dir string) (*herd.Redis, error) {
	if addr == "" {
		return herd.StartRedis(dir)
	}
	return herd.UseRedis(ctx, addr)
}
