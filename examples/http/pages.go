package main

import (
	_ "embed"
	"fmt"
	"html/template"
	"net/http"
	"time"

	"github.com/stockade-cache/stockade/examples/internal/display"
)

//go:embed report.html
var reportSource string

//go:embed index.html
var indexSource []byte

var reportTemplate = template.Must(template.New("report").Parse(reportSource))

// pages are the handlers of the service. They know nothing of the middleware, but say what may be kept.
type pages struct {
	sales  *sales
	maxAge time.Duration
	stale  time.Duration // after maxAge
}

// report is the expensive page.
func (p *pages) report(w http.ResponseWriter, r *http.Request) {
	began := time.Now()
	lines, err := p.sales.report(r.Context())
	if err != nil {
		http.Error(w, "the report cannot be made", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.Header().Set("Cache-Control", fmt.Sprintf("max-age=%d, stale-while-revalidate=%d", int(p.maxAge.Seconds()), int(p.stale.Seconds())))
	_ = reportTemplate.Execute(w, struct { // it fails when the client has left
		At, Took string
		Lines    []line
	}{began.Format("15:04:05.000"), display.Rounded(time.Since(began)).String(), lines})
}

// private is a page of one user: nobody else may get it, and so nobody waits for another's.
func (p *pages) private(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Cache-Control", "private")
	fmt.Fprintf(w, "<p>for you alone, at %s\n", time.Now().Format("15:04:05.000"))
}

// index shows the others, with what became of each request.
func index(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	_, _ = w.Write(indexSource)
}
