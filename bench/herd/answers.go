package herd

import (
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/stockade-cache/stockade/bench/report"
)

// Answers is what the callers of a process got. It is safe for concurrent use while they ask.
type Answers struct {
	Latency *Latency       // of the good ones
	Sent    map[string]int // commands to Redis, by name

	mu     sync.Mutex
	Errors map[string]int // guarded by mu: how often which, of few kinds
}

// kinds is how many different errors are kept: their texts may hold keys and addresses.
const kinds = 10

func newAnswers() *Answers { return &Answers{Latency: newLatency(), Errors: map[string]int{}} }

// add adds an answer that was due at that time.
func (a *Answers) add(due time.Time, err error) {
	if err == nil {
		a.Latency.add(time.Since(due))
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	text := err.Error()
	if a.Errors[text] == 0 && len(a.Errors) >= kinds {
		text = "others"
	}
	a.Errors[text]++
}

func merge(all []*Answers) *Answers {
	sum := newAnswers()
	sum.Sent = map[string]int{}
	for _, a := range all {
		sum.Latency.merge(a.Latency)
		for text, n := range a.Errors {
			sum.Errors[text] += n
		}
		for name, n := range a.Sent {
			sum.Sent[name] += n
		}
	}
	return sum
}

func (a *Answers) failed() int {
	n := 0
	for _, times := range a.Errors {
		n += times
	}
	return n
}

func (a *Answers) sent() int {
	n := 0
	for _, times := range a.Sent {
		n += times
	}
	return n
}

// err tells of the most frequent error; nil when there was none.
func (a *Answers) err() error {
	if len(a.Errors) == 0 {
		return nil
	}
	texts := make([]string, 0, len(a.Errors))
	for text := range a.Errors {
		texts = append(texts, text)
	}
	slices.SortFunc(texts, func(x, y string) int { return pick(a.Errors[y]-a.Errors[x], len(x)-len(y)) })
	return fmt.Errorf("%d of %d answers were errors, most often: %s", a.failed(), a.failed()+a.Latency.Count(), texts[0])
}

// result has the figures that are numbers, and the distribution of the latencies as the series of that name.
func (a *Answers) result(figures map[string]float64, series string) Result {
	for name, value := range figures {
		if math.IsNaN(value) || math.IsInf(value, 0) {
			delete(figures, name)
		}
	}
	return Result{Figures: figures, Series: map[string][]report.Point{series: a.Latency.distribution()}}
}

// errorsOf joins errors on one line.
func errorsOf(errs ...error) error {
	var all error
	for _, err := range errs {
		switch {
		case err == nil:
		case all == nil:
			all = err
		default:
			all = fmt.Errorf("%w; %w", all, err)
		}
	}
	return all
}
