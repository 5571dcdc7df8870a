package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
)

var (
	errPaid  = errors.New("order is paid")
	errFence = errors.New("order has seen a newer lock")
)

// orders is the resource that the lock protects. Each order remembers the largest fence it has seen.
type orders struct{ db *sql.DB }

func createOrders(ctx context.Context, db *sql.DB, ids ...string) (*orders, error) {
	_, err := db.ExecContext(ctx, `
		CREATE TABLE orders (id TEXT PRIMARY KEY, fence INTEGER NOT NULL DEFAULT 0, paid INTEGER NOT NULL DEFAULT 0);
		CREATE TABLE payments (order_id TEXT NOT NULL, worker TEXT NOT NULL)`)
	if err != nil {
		return nil, err
	}
	for _, id := range ids {
		if _, err := db.ExecContext(ctx, `INSERT INTO orders (id) VALUES (?)`, id); err != nil {
			return nil, err
		}
	}
	return &orders{db}, nil
}

// pay pays an order that is not paid yet, for the holder of the newest lock that the order has seen.
func (o *orders) pay(ctx context.Context, order, worker string, fence int64) error {
	tx, err := o.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback() // does nothing after the commit
	newest, err := changed(tx.ExecContext(ctx, `UPDATE orders SET fence = ? WHERE id = ? AND fence < ?`, fence, order, fence))
	if err != nil {
		return err
	}
	if !newest {
		return fmt.Errorf("%w than %d", errFence, fence)
	}
	open, err := changed(tx.ExecContext(ctx, `UPDATE orders SET paid = 1 WHERE id = ? AND paid = 0`, order))
	if err != nil {
		return err
	}
	if !open {
		return errors.Join(errPaid, tx.Commit()) // the order keeps the fence
	}
	if _, err := tx.ExecContext(ctx, `INSERT INTO payments (order_id, worker) VALUES (?, ?)`, order, worker); err != nil {
		return err
	}
	return tx.Commit()
}

// payments returns how often an order was paid.
func (o *orders) payments(ctx context.Context, order string) (n int, err error) {
	err = o.db.QueryRowContext(ctx, `SELECT count(*) FROM payments WHERE order_id = ?`, order).Scan(&n)
	return n, err
}

// changed reports whether a statement changed a row.
func changed(result sql.Result, err error) (bool, error) {
	if err != nil {
		return false, err
	}
	n, err := result.RowsAffected()
	return n > 0, err
}
