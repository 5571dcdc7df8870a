package herd

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/stockade-cache/stockade/bench/origin"
)

// visiting has visitors ask for pages, each over a connection of its own that is open already.
var visiting = define("visit", func(ctx context.Context, _ *worker, p visitParams) (*visited, error) {
	result := &visited{Answers: newAnswers()}
	var (
		visitors = make([]*visitor, p.Visitors)
		opening  sync.WaitGroup
		asking   sync.WaitGroup
		begin    = make(chan struct{})
	)
	for i := range visitors {
		v := newVisitor(p.Sites[i%len(p.Sites)])
		defer v.client.CloseIdleConnections()
		visitors[i] = v
		opening.Add(1)
		asking.Go(func() {
			_, err := v.get(ctx, "/ready")
			opening.Done()
			<-begin
			for end := time.Now().Add(p.Lasts); ; {
				due := time.Now()
				if err == nil {
					err = v.page(ctx, p.ID)
				}
				result.Answers.add(due, err)
				if err != nil || !time.Now().Before(end) {
					return
				}
			}
		})
	}
	opening.Wait()
	began := time.Now()
	close(begin)
	asking.Wait()
	result.Took = time.Since(began)
	return result, nil
})

type visitParams struct {
	Sites    []string // that visitors are spread over
	Visitors int
	ID       int           // of the page
	Lasts    time.Duration // for how long visitors ask again and again; zero means once
}

type visited struct {
	Answers *Answers
	Took    time.Duration
}

// visitor is a client with one connection.
type visitor struct {
	client *http.Client
	site   string
}

func newVisitor(site string) *visitor {
	const patience = 30 * time.Second
	return &visitor{&http.Client{Transport: &http.Transport{MaxConnsPerHost: 1, DisableCompression: true}, Timeout: patience}, site}
}

func (v *visitor) get(ctx context.Context, path string) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, v.site+path, nil)
	if err != nil {
		return nil, err
	}
	request.Host = "shop.example" // all services are one site, as behind a load balancer
	response, err := v.client.Do(request)
	if err != nil {
		return nil, err
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("status %d: %.100s", response.StatusCode, body)
	}
	return body, err
}

// page reads a page, and fails when it is another one or not whole.
func (v *visitor) page(ctx context.Context, id int) error {
	body, err := v.get(ctx, fmt.Sprint("/page/", id))
	if err != nil {
		return err
	}
	item, err := origin.Decode(body)
	if err == nil && (item.ID != id || len(body) != pageSize) {
		err = fmt.Errorf("asked for page %d of %d bytes, got %d of %d", id, pageSize, item.ID, len(body))
	}
	return err
}
