// Package store is the database of the examples: a real SQLite file. Its queries are counted, and may be held for a
// while each, so that a small table can stand for an expensive one.
package store

import (
	"context"
	"database/sql"
	"fmt"
	"net/url"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"time"

	_ "modernc.org/sqlite"
)

// Open creates a database file in dir, or opens the one that is there. A writer does not keep readers out (WAL), waits
// for its turn instead of failing, and takes the turn when its transaction begins.
func Open(dir string) (*sql.DB, error) {
	settings := url.Values{
		"_pragma": {"busy_timeout(10000)", "journal_mode(WAL)", "synchronous(NORMAL)"},
		"_txlock": {"immediate"},
	}
	file := url.URL{Scheme: "file", Path: filepath.ToSlash(filepath.Join(dir, "store.db")), RawQuery: settings.Encode()}
	db, err := sql.Open("sqlite", file.String())
	if err != nil {
		return nil, err
	}
	// More connections than processors only wait for one another. Queries beyond them queue here.
	connections := 2 * runtime.GOMAXPROCS(0)
	db.SetMaxOpenConns(connections)
	db.SetMaxIdleConns(connections)
	if err := connect(db, connections); err != nil {
		db.Close()
		return nil, fmt.Errorf("open %s: %w", file.Path, err)
	}
	return db, nil
}

// connect opens n connections, so that no query is measured while it opens one.
func connect(db *sql.DB, n int) error {
	for range n {
		conn, err := db.Conn(context.Background())
		if err != nil {
			return err
		}
		defer conn.Close() // gives it back when all are open
	}
	return nil
}

// Product is one row.
type Product struct {
	ID    int64
	Name  string
	Cents int64
	Stock int64
}

// Products is a repository. It is safe for concurrent use.
type Products struct {
	db      *sql.DB
	find    *sql.Stmt
	hold    time.Duration
	queries atomic.Int64
}

// CreateProducts makes the table and fills it with rows whose ids are 1 to n. Each later query is held for hold.
func CreateProducts(ctx context.Context, db *sql.DB, n int, hold time.Duration) (*Products, error) {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return nil, err
	}
	defer tx.Rollback() // does nothing after the commit
	_, err = tx.ExecContext(ctx, `CREATE TABLE products (id INTEGER PRIMARY KEY, name TEXT NOT NULL, cents INTEGER NOT NULL, stock INTEGER NOT NULL)`)
	if err != nil {
		return nil, err
	}
	insert, err := tx.PrepareContext(ctx, `INSERT INTO products (id, name, cents, stock) VALUES (?, ?, ?, ?)`)
	if err != nil {
		return nil, err
	}
	defer insert.Close()
	for id := int64(1); id <= int64(n); id++ {
		if _, err := insert.ExecContext(ctx, id, fmt.Sprintf("product %d", id), 99+id*7%10_000, id%50); err != nil {
			return nil, err
		}
	}
	if err := tx.Commit(); err != nil {
		return nil, err
	}
	find, err := db.PrepareContext(ctx, `SELECT id, name, cents, stock FROM products WHERE id = ?`)
	if err != nil {
		return nil, err
	}
	return &Products{db: db, find: find, hold: hold}, nil
}

// Find queries one product. A product that does not exist is [sql.ErrNoRows].
func (p *Products) Find(ctx context.Context, id int64) (Product, error) {
	p.queries.Add(1)
	var found Product
	err := p.find.QueryRowContext(ctx, id).Scan(&found.ID, &found.Name, &found.Cents, &found.Stock)
	if err != nil {
		return Product{}, fmt.Errorf("find product %d: %w", id, err)
	}
	if err := wait(ctx, p.hold); err != nil {
		return Product{}, fmt.Errorf("find product %d: %w", id, err)
	}
	return found, nil
}

// FindMany queries many products at once. Those that do not exist are missing from the map.
func (p *Products) FindMany(ctx context.Context, ids []int64) (map[int64]Product, error) {
	if len(ids) == 0 {
		return nil, nil
	}
	p.queries.Add(1)
	query := `SELECT id, name, cents, stock FROM products WHERE id IN (?` + strings.Repeat(`, ?`, len(ids)-1) + `)`
	args := make([]any, len(ids))
	for i, id := range ids {
		args[i] = id
	}
	rows, err := p.db.QueryContext(ctx, query, args...)
	if err != nil {
		return nil, fmt.Errorf("find %d products: %w", len(ids), err)
	}
	defer rows.Close()
	found := make(map[int64]Product, len(ids))
	for rows.Next() {
		var one Product
		if err := rows.Scan(&one.ID, &one.Name, &one.Cents, &one.Stock); err != nil {
			return nil, fmt.Errorf("find %d products: %w", len(ids), err)
		}
		found[one.ID] = one
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("find %d products: %w", len(ids), err)
	}
	return found, wait(ctx, p.hold)
}

// Sell takes one piece out of stock.
func (p *Products) Sell(ctx context.Context, id int64) error {
	result, err := p.db.ExecContext(ctx, `UPDATE products SET stock = stock - 1 WHERE id = ? AND stock > 0`, id)
	if err != nil {
		return fmt.Errorf("sell product %d: %w", id, err)
	}
	sold, err := result.RowsAffected()
	if err != nil {
		return fmt.Errorf("sell product %d: %w", id, err)
	}
	if sold == 0 {
		return fmt.Errorf("sell product %d: none is left", id)
	}
	return nil
}

// Queries returns how many times a product was queried.
func (p *Products) Queries() int64 { return p.queries.Load() }

func wait(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// IDs returns all ids.
func (p *Products) IDs(ctx context.Context) ([]int64, error) {
	rows, err := p.db.QueryContext(ctx, `SELECT id FROM products`)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var ids []int64
	for rows.Next() {
		var id int64
		if err := rows.Scan(&id); err != nil {
			return nil, err
		}
		ids = append(ids, id)
	}
	return ids, rows.Err()
}
