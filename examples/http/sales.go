package main

import (
	"context"
	"database/sql"
	"fmt"
	"sync/atomic"
	"time"
)

// sales are what the report is about. They are safe for concurrent use.
type sales struct {
	db   *sql.DB
	rows int
	took time.Duration // by one report while nothing else ran
	runs atomic.Int64  // of the report
}

// line is one of the report.
type line struct {
	Region           string
	Sales, Customers int64
	Euros, Greatest  float64
}

// createSales fills a table until a report over it takes about as long as is wanted: what that needs in rows depends on
// the machine.
func createSales(ctx context.Context, db *sql.DB, wanted time.Duration) (*sales, error) {
	const (
		few  = 1000
		most = 20_000_000
	)
	s := &sales{db: db}
	if _, err := db.ExecContext(ctx, `CREATE TABLE sales (id INTEGER PRIMARY KEY, region TEXT NOT NULL, customer INTEGER NOT NULL, cents INTEGER NOT NULL)`); err != nil {
		return nil, err
	}
	for more := few; ; {
		if err := s.add(ctx, more); err != nil {
			return nil, err
		}
		began := time.Now()
		if _, err := s.report(ctx); err != nil {
			return nil, err
		}
		s.took = time.Since(began)
		if s.took >= wanted*9/10 || s.rows >= most {
			s.runs.Store(0)
			return s, nil
		}
		// At most eight times as many at once: what little takes says little of what much will.
		needed := float64(s.rows) * float64(wanted) / float64(s.took)
		more = max(min(int(needed), 8*s.rows, most)-s.rows, few)
	}
}

// add adds rows that look like sales.
func (s *sales) add(ctx context.Context, n int) error {
	_, err := s.db.ExecContext(ctx, `
		WITH RECURSIVE n(id) AS (SELECT ?1 UNION ALL SELECT id + 1 FROM n WHERE id < ?2)
		INSERT INTO sales SELECT id, 'region ' || (id * 7919 % 12), id * 104729 % 50021, 100 + id * 15485863 % 99901 FROM n`, s.rows+1, s.rows+n)
	if err != nil {
		return fmt.Errorf("add %d sales: %w", n, err)
	}
	s.rows += n
	return nil
}

// report computes the report from all rows.
func (s *sales) report(ctx context.Context) ([]line, error) {
	s.runs.Add(1)
	rows, err := s.db.QueryContext(ctx, `
		SELECT region, count(*), count(DISTINCT customer), sum(cents) / 100.0, max(cents) / 100.0
		FROM sales GROUP BY region ORDER BY sum(cents) DESC`)
	if err != nil {
		return nil, fmt.Errorf("report: %w", err)
	}
	defer rows.Close()
	var lines []line
	for rows.Next() {
		var l line
		if err := rows.Scan(&l.Region, &l.Sales, &l.Customers, &l.Euros, &l.Greatest); err != nil {
			return nil, fmt.Errorf("report: %w", err)
		}
		lines = append(lines, l)
	}
	return lines, rows.Err()
}
