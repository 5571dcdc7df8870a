package herd

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/stockade-cache/stockade/bench/origin"
)

// TestMain lets the test binary be a process of a fleet, too. In the end neither a goroutine nor a process may be left.
func TestMain(m *testing.M) {
	if IsProcess() {
		if err := Serve(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	code := m.Run()
	if err := errors.Join(goleak.Find(), childless()); err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// childless fails when a child of this process is still there.
func childless() error {
	var status syscall.WaitStatus
	if pid, err := syscall.Wait4(-1, &status, syscall.WNOHANG, nil); !errors.Is(err, syscall.ECHILD) {
		return fmt.Errorf("a child was left behind: Wait4 says %d, %v", pid, err)
	}
	return nil
}

// newBench returns a bench on a server and a database of its own.
func newBench(t *testing.T) *Bench {
	t.Helper()
	server, err := StartRedis(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Close)
	database, err := origin.Open(t.Context(), "", t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := database.Close(); err != nil {
			t.Error(err)
		}
	})
	b, err := NewBench(server, database)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Close)
	return b
}

// measured makes one measurement, which must succeed.
func measured(t *testing.T, b *Bench, c Case, contestant string) Result {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	result, err := b.measure(ctx, c, contestant)
	if err != nil {
		t.Fatalf("%s: %v (figures: %v)", contestant, err, result.Figures)
	}
	t.Logf("%s: %v", contestant, result.Figures)
	return result
}
