package store

import (
	"context"
	"database/sql"
	"errors"
	"sync"
	"testing"
	"time"
)

func open(t *testing.T, hold time.Duration) *Products {
	t.Helper()
	db, err := Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	products, err := CreateProducts(t.Context(), db, 100, hold)
	if err != nil {
		t.Fatal(err)
	}
	return products
}

func TestFind(t *testing.T) {
	products := open(t, 0)
	got, err := products.Find(t.Context(), 7)
	if want := (Product{ID: 7, Name: "product 7", Cents: 148, Stock: 7}); err != nil || got != want {
		t.Errorf("Find(7) = %v, %v, want %v", got, err, want)
	}
	if _, err := products.Find(t.Context(), 101); !errors.Is(err, sql.ErrNoRows) {
		t.Errorf("Find(101) = %v, want sql.ErrNoRows", err)
	}
	if got := products.Queries(); got != 2 {
		t.Errorf("Queries() = %d, want 2", got)
	}
}

func TestThousandQueriesAtOnce(t *testing.T) {
	products := open(t, 100*time.Millisecond)
	var callers sync.WaitGroup
	for i := range int64(1000) {
		callers.Go(func() {
			if _, err := products.Find(t.Context(), 1+i%100); err != nil {
				t.Error(err)
			}
		})
	}
	// Readers do not keep a writer out.
	if err := products.Sell(t.Context(), 1); err != nil {
		t.Error(err)
	}
	callers.Wait()
	if got := products.Queries(); got != 1000 {
		t.Errorf("Queries() = %d, want 1000", got)
	}
}

func TestHeldQueryEndsWithItsContext(t *testing.T) {
	products := open(t, time.Hour)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := products.Find(ctx, 1); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Find = %v, want context.DeadlineExceeded", err)
	}
}

func TestSell(t *testing.T) {
	products := open(t, 0)
	if err := products.Sell(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	if got, err := products.Find(t.Context(), 1); err != nil || got.Stock != 0 {
		t.Errorf("after Sell Find = %+v, %v, want no stock", got, err)
	}
	if err := products.Sell(t.Context(), 1); err == nil {
		t.Error("sold what was not in stock")
	}
}
