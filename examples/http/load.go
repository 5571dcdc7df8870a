package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/stockade-cache/stockade/examples/internal/display"
)

// scenario is what all clients do.
type scenario struct {
	name, what string
	maxAge     time.Duration // of the page
	warm       bool          // the page has been asked for once when the clients begin
	every      time.Duration // how often each client asks; zero: once
	lasts      time.Duration // for how long they begin to ask
}

func coldPage() scenario {
	return scenario{name: "a cold page", what: "every client asks for it at the same moment", maxAge: time.Minute}
}

func expiringPage(report time.Duration) scenario {
	const expiries = 4
	maxAge := max(time.Second, (2 * report).Round(time.Second))
	return scenario{
		name:   "an expiring page",
		what:   fmt.Sprintf("every client asks once a second, for %d times its max-age of %v; then it may be served stale while it is renewed", expiries, maxAge),
		maxAge: maxAge, warm: true, every: time.Second, lasts: expiries * maxAge,
	}
}

// result is what was measured.
type result struct {
	scenario   string
	shared     bool // with the middleware
	requests   int
	unanswered int64 // within the clients' timeout
	runs       int64 // of the handler
	p50, p99   time.Duration
}

func wayName(shared bool) string {
	if shared {
		return "with the middleware"
	}
	return "without it"
}

// measure runs a scenario on instances of its own, under a prefix that nobody has used.
func measure(ctx context.Context, s settings, sc scenario, shared bool, sales *sales, progress *display.Progress) (r result, err error) {
	const stale = time.Minute
	all, err := startInstances(ctx, s.redis, "http:"+rand.Text(), &pages{sales, sc.maxAge, stale}, shared)
	defer func() {
		for _, in := range all {
			if closed := in.close(); err == nil {
				err = closed
			}
		}
	}()
	if err != nil {
		return r, err
	}
	transport := &http.Transport{MaxIdleConnsPerHost: s.clients}
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport}
	// The instances are one service: they have one name, whatever their addresses are.
	ask := func(ctx context.Context, in *instance) error {
		return get(ctx, client, in.url+"/report", "shop.example")
	}
	if sc.warm {
		if err := ask(ctx, all[0]); err != nil {
			return r, err
		}
	}

	var (
		before               = sales.runs.Load()
		answered, unanswered atomic.Int64
		took                 = make([][]time.Duration, s.clients)
		begin                = make(chan struct{})
		clients              sync.WaitGroup
		running, fail        = context.WithCancelCause(ctx)
	)
	defer fail(nil)
	for i := range took {
		clients.Go(func() {
			<-begin
			offset := sc.every * time.Duration(i) / time.Duration(s.clients)
			err := repeat(running, sc, offset, func() error {
				began := time.Now()
				patient, leave := context.WithTimeout(running, s.timeout)
				defer leave()
				err := ask(patient, all[i%len(all)])
				took[i] = append(took[i], time.Since(began))
				if errors.Is(err, context.DeadlineExceeded) && running.Err() == nil {
					unanswered.Add(1)
					return nil
				}
				answered.Add(1)
				return err
			})
			if err != nil {
				fail(err)
			}
		})
	}
	done := progress.Show(func() string {
		return fmt.Sprintf("  %-19s  %6d answers  %5d unanswered  %5d handler runs", wayName(shared), answered.Load(), unanswered.Load(), sales.runs.Load()-before)
	})
	close(begin)
	clients.Wait()
	done()
	if err := context.Cause(running); err != nil {
		return r, err
	}
	every := slices.Concat(took...)
	slices.Sort(every)
	return result{
		scenario: sc.name, shared: shared, requests: len(every), unanswered: unanswered.Load(), runs: sales.runs.Load() - before,
		p50: quantile(every, 0.50), p99: quantile(every, 0.99),
	}, nil
}

// get asks for a page, and reads all of it.
func get(ctx context.Context, client *http.Client, url, host string) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	r.Host = host
	response, err := client.Do(r)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err == nil && (response.StatusCode != http.StatusOK || len(body) == 0) {
		err = fmt.Errorf("got %s with %d bytes: %.100q", response.Status, len(body), body)
	}
	return err
}

// repeat calls ask as often as the scenario says. Clients keep their rhythm: one that was held up leaves out what it missed.
func repeat(ctx context.Context, sc scenario, offset time.Duration, ask func() error) error {
	if sc.every == 0 {
		return ask()
	}
	end := time.Now().Add(sc.lasts)
	for next := time.Now().Add(offset); next.Before(end); {
		select {
		case <-time.After(time.Until(next)):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		if err := ask(); err != nil {
			return err
		}
		for next = next.Add(sc.every); next.Before(time.Now()); {
			next = next.Add(sc.every)
		}
	}
	return nil
}

// quantile returns the smallest of what is sorted, and not empty, that at least this part is not above.
func quantile(sorted []time.Duration, part float64) time.Duration {
	return sorted[max(int(math.Ceil(part*float64(len(sorted)))), 1)-1]
}

// check returns what does not hold of what the middleware promises.
func check(results []result) error {
	var broken []error
	for _, r := range results {
		switch {
		case !r.shared:
		case r.unanswered > 0:
			broken = append(broken, fmt.Errorf("%s: %d of %d requests had no answer", r.scenario, r.unanswered, r.requests))
		case r.scenario == coldPage().name && r.runs != 1:
			broken = append(broken, fmt.Errorf("%s: the handler ran %d times, want once on all instances", r.scenario, r.runs))
		}
	}
	return errors.Join(broken...)
}
