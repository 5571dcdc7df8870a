package main

import (
	"errors"
	"strings"
	"testing"

	"github.com/alicebob/miniredis/v2"

	"github.com/stockade-cache/stockade/examples/internal/store"
)

func TestRun(t *testing.T) {
	server := miniredis.RunT(t)
	server.ClockTTL(true)
	var out strings.Builder
	if err := run(t.Context(), t.TempDir(), server.Addr(), &out); err != nil {
		t.Fatal(err)
	}
	text := out.String()
	race, pause, ok := strings.Cut(text, "anna is stopped")
	if !ok || strings.Count(race, " paid\n") != 2 || strings.Count(race, "found it paid") != 1 {
		t.Errorf("want one worker that paid and one that found it paid:\n%s", text)
	}
	for _, want := range []string{
		"ben paid\n",
		"anna was refused by the database; knows that the lock was lost: true\n",
		"order A-1 has 1 payment(s)\n",
		"order A-2 has 1 payment(s)\n",
	} {
		if !strings.Contains(pause, want) {
			t.Errorf("want %q:\n%s", want, text)
		}
	}
}

func TestFence(t *testing.T) {
	db, err := store.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	orders, err := createOrders(t.Context(), db, "A-1")
	if err != nil {
		t.Fatal(err)
	}
	for _, try := range []struct {
		fence int64
		want  error
	}{{5, nil}, {5, errFence}, {4, errFence}, {6, errPaid}, {5, errFence}, {6, errFence}} {
		if err := orders.pay(t.Context(), "A-1", "anna", try.fence); !errors.Is(err, try.want) {
			t.Errorf("pay with fence %d = %v, want %v", try.fence, err, try.want)
		}
	}
	if n, err := orders.payments(t.Context(), "A-1"); err != nil || n != 1 {
		t.Errorf("payments = %d, %v, want 1", n, err)
	}
}
