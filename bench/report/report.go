// Package report turns what was measured into tables, charts and one page.
package report

import "time"

// Report is one run of the benchmark.
type Report struct {
	Started   time.Time
	Took      time.Duration
	Command   string // the command line
	Profile   string // short or full
	Method    string // how it was measured, in paragraphs; may be empty
	Machine   Machine
	Peers     []Peer
	Scenarios []Scenario
}

// Machine is what the run ran on.
type Machine struct {
	CPU     string
	Cores   int
	Memory  string
	OS      string
	Go      string
	Redis   string // its version, or that it is embedded
	Origin  string // the database
	Modules []Module
}

// Module is a library that took part.
type Module struct{ Path, Version string }

// Peer is a contestant.
type Peer struct {
	Name, About string
	Settings    string // what is not its default
}

// Scenario is one thing that was done to all contestants.
type Scenario struct {
	Name    string // "cold"
	Number  string // "S1"
	Title   string // "A cold key"
	About   string // what is done and what the figures mean, a few sentences
	Figures []Figure
	Charts  []Chart
	Rows    []Measurement
	Noise   Noise
}

// Figure is a column of a scenario's table.
type Figure struct {
	Name  string // key in Measurement.Figures
	Title string // head of the column
	Unit  string // "ms", "", "%", "KB"
	Best  Best
	About string // what it is, one sentence; may be empty
}

// Best says which of two figures is the better one.
type Best string

const (
	Lower  Best = "lower"
	Higher Best = "higher"
	Either Best = "" // it is neither good nor bad
)

// Measurement is what one contestant did in one round of one case.
type Measurement struct {
	Case       string // "4 × 250 callers, 100 ms"; tables and charts are made for each
	Contestant string
	Round      int
	Error      string             // why figures are missing, or what was wrong with them
	Figures    map[string]float64 // by Figure.Name
	Series     map[string][]Point // by name: latency distributions, loads over time
}

// Point is a place in a chart.
type Point struct{ X, Y float64 }

// Noise says how steady the machine was while a scenario ran: a fixed piece of work was timed between the measurements.
type Noise struct {
	Median, Min, Max time.Duration
}

// Chart is a picture of a scenario's measurements, one for each case.
type Chart struct {
	Name   string // of the file, behind that of the scenario: "loads"
	Title  string
	Kind   Kind
	Of     string // a Figure's name for Bars, that of a Series for Lines
	XTitle string // of Lines
	YTitle string
	XLog   bool
	YLog   bool // of Bars: the axis of the values
	// Cases and Contestants are those shown; empty means all.
	Cases       []string
	Contestants []string
}

// Kind is how a chart is drawn.
type Kind string

const (
	Bars  Kind = "bars"  // a bar for each contestant: the median, and a line from min to max
	Lines Kind = "lines" // a line for each contestant: the round in the middle
)
