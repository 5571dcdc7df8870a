package herd

import (
	"context"
	"fmt"
	"time"

	"github.com/stockade-cache/stockade/bench/origin"
	"github.com/stockade-cache/stockade/bench/peers"
	"github.com/stockade-cache/stockade/bench/report"
)

// pageSize is how large a page is.
const pageSize = 1 << 10

// pages is the stampede as web servers know it: many connections ask for one page that takes a while to make.
func pages() Scenario {
	return Scenario{
		Scenario: report.Scenario{
			Name: "http", Number: "S13", Title: "A page over HTTP",
			About: "Processes of a web service have a handler that needs a slow query of the database. Its page of 1 KiB says that it is fresh for a minute " +
				"(Cache-Control: max-age=60). Clients ask all services for it at the same moment, each over a connection of its own that is open " +
				"already. One run of the handler would do. Then the page is cached, and the same clients ask for it again and again. A round on " +
				"another page comes before. The client shares the machine with the services, and takes more of it than they do.",
			Figures: []report.Figure{
				{Name: "runs", Title: "handler runs", Best: report.Lower},
				{Name: "p50", Title: "p50", Unit: "ms", Best: report.Lower},
				{Name: "p99", Title: "p99", Unit: "ms", Best: report.Lower},
				{Name: "over", Title: "p99 ÷ handler", Unit: "×", Best: report.Lower},
				{Name: "hit", Title: "a hit", Unit: "ms", Best: report.Lower, About: "median of one client that asks alone for the cached page"},
				{Name: "hits", Title: "cached pages/s", Best: report.Higher, About: "all clients together, each asking as soon as it has an answer"},
				{Name: "again", Title: "runs while cached", Best: report.Lower, About: "runs of the handler in these two last measurements"},
				{Name: "errors", Title: "errors", Best: report.Lower, About: "answers that were no page, or another one"},
			},
			Charts: []report.Chart{
				{Name: "runs", Title: "Runs of the handler for one page", Kind: report.Bars, Of: "runs", YTitle: "runs", YLog: true},
				{Name: "p99", Title: "Slowest 1 % of the clients", Kind: report.Bars, Of: "p99", YTitle: "ms"},
				{Name: "hits", Title: "Cached pages a second", Kind: report.Bars, Of: "hits", YTitle: "pages/s"},
			},
		},
		Cases: func(p Profile) []Case {
			services, load := pick(p.Processes, 2), pick(p.Load, 200*time.Millisecond)
			lasts := pick(p.Duration, time.Second)
			switch {
			case p.Callers != 0:
				return []Case{pagesCase(services, p.Callers*services, load, lasts, p.rounds(1, 5))}
			case !p.Full:
				return []Case{pagesCase(services, 50, load, lasts, p.rounds(1, 1))}
			}
			lasts = pick(p.Duration, 3*time.Second)
			return []Case{
				pagesCase(services, 500, load, lasts, p.rounds(1, 3)),
				pagesCase(services, 50, load, lasts, p.rounds(1, 2)),
			}
		},
	}
}

func pagesCase(services, visitors int, load, lasts time.Duration, rounds int) Case {
	return Case{
		Name:   fmt.Sprintf("%d connections to %d services, handler %v", visitors, services, load),
		Rounds: rounds, Contestants: HTTPContestants(),
		Measure: func(ctx context.Context, b *Bench, contestant string) (Result, error) {
			serve := func(s *Setup) { s.HTTP, s.Size = true, pageSize }
			fleet, err := b.fleet(ctx, services, contestant, peers.Config{TTL: pagesFresh, Load: load}, serve)
			if err != nil {
				return Result{}, err
			}
			sites, err := locating.onAll(ctx, fleet, same(struct{}{}))
			if err != nil {
				return Result{}, err
			}
			// The client could have any contestant: nobody asks it.
			client, err := b.fleet(ctx, 1, "none", peers.Config{TTL: pagesFresh, Load: load}, serve)
			if err != nil {
				return Result{}, err
			}
			visit := func(id, visitors int, lasts time.Duration) (*visited, error) {
				return visiting.on(ctx, client[0], visitParams{Sites: sites, Visitors: visitors, ID: id, Lasts: lasts})
			}

			b.Origin.Reset(origin.Settings{Load: 20 * time.Millisecond})
			if _, err := visit(1, visitors, 0); err != nil {
				return Result{}, fmt.Errorf("the round before: %w", err)
			}
			if err := b.begin(ctx, origin.Settings{Load: load}); err != nil {
				return Result{}, err
			}
			cold, err := visit(0, visitors, 0)
			if err != nil {
				return Result{}, err
			}
			runs := b.part(origin.Settings{Load: load}).Loads
			alone, err := visit(0, 1, lasts/2)
			if err != nil {
				return Result{}, err
			}
			hits, err := visit(0, visitors, lasts)
			if err != nil {
				return Result{}, err
			}
			counts, err := b.counted()
			all := merge([]*Answers{cold.Answers, alone.Answers, hits.Answers})
			figures := map[string]float64{
				"runs": float64(runs), "p50": cold.Answers.Latency.at(50), "p99": cold.Answers.Latency.at(99),
				"over": cold.Answers.Latency.at(99) / float64(load.Milliseconds()), "hit": alone.Answers.Latency.at(50),
				"hits":  float64(hits.Answers.Latency.Count()) / hits.Took.Seconds(),
				"again": float64(counts.Loads), "errors": float64(all.failed()),
			}
			return cold.Answers.result(figures, "latency"), errorsOf(err, all.err())
		},
	}
}
