// Lock pays orders exactly once. Two workers race for an order; then a worker is stopped for longer than its lock
// lives, and the database refuses what it still tries to write, because the order has seen a larger fence.
//
//	go run ./examples/lock
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"os"
	"sync"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/stockade-cache/stockade"
	"github.com/stockade-cache/stockade/examples/internal/store"
)

func main() {
	log.SetFlags(0)
	dir, err := os.MkdirTemp("", "lock-")
	if err != nil {
		log.Fatal(err)
	}
	server, err := miniredis.Run() // in your service: the Redis that you have
	if err == nil {
		server.ClockTTL(true) // keys expire as time goes by
		err = run(context.Background(), dir, server.Addr(), os.Stdout)
	}
	if removed := os.RemoveAll(dir); err == nil {
		err = removed
	}
	if err != nil {
		log.Fatal("lock: ", err)
	}
}

func run(ctx context.Context, dir, redisAddr string, w io.Writer) error {
	db, err := store.Open(dir)
	if err != nil {
		return err
	}
	defer db.Close()
	orders, err := createOrders(ctx, db, "A-1", "A-2")
	if err != nil {
		return err
	}
	anna, err := newWorker("anna", redisAddr)
	if err != nil {
		return err
	}
	defer anna.close()
	ben, err := newWorker("ben", redisAddr)
	if err != nil {
		return err
	}
	defer ben.close()

	fmt.Fprintln(w, "two workers race for order A-1:")
	var racing sync.WaitGroup
	outcomes := make(chan string, 2)
	for _, worker := range []*worker{anna, ben} {
		racing.Go(func() { outcomes <- describe(worker, worker.pay(ctx, orders, "A-1")) })
	}
	racing.Wait()
	close(outcomes)
	for outcome := range outcomes {
		fmt.Fprintln(w, " ", outcome)
	}

	fmt.Fprintln(w, "anna is stopped while she holds the lock of order A-2:")
	stopped, resume := make(chan struct{}), make(chan struct{})
	outcome := make(chan string, 1)
	go func() {
		outcome <- describe(anna, anna.payAfter(ctx, orders, "A-2", func() {
			anna.cut.off()
			close(stopped)
			<-resume
		}))
	}()
	select {
	case <-stopped:
		fmt.Fprintln(w, " ", describe(ben, ben.pay(ctx, orders, "A-2"))) // waits until anna's lock has expired
		close(resume)
		anna.cut.on()
		fmt.Fprintln(w, " ", <-outcome)
	case early := <-outcome:
		return errors.New("the stopped worker ended early: " + early)
	}

	for _, order := range []string{"A-1", "A-2"} {
		n, err := orders.payments(ctx, order)
		if err != nil {
			return err
		}
		fmt.Fprintf(w, "order %s has %d payment(s)\n", order, n)
	}
	return nil
}

func describe(w *worker, err error) string {
	switch {
	case err == nil:
		return w.name + " paid"
	case errors.Is(err, errPaid):
		return w.name + " found it paid"
	case errors.Is(err, errFence):
		return fmt.Sprintf("%s was refused by the database; knows that the lock was lost: %t", w.name, errors.Is(err, stockade.ErrLockLost))
	default:
		return fmt.Sprintf("%s failed: %v", w.name, err)
	}
}

// worker is one process of the service: a client and a Locker of its own.
type worker struct {
	name   string
	cut    *cut
	client *redis.Client
	locker *stockade.Locker
}

func newWorker(name, redisAddr string) (*worker, error) {
	w := &worker{name: name, cut: &cut{}, client: redis.NewClient(&redis.Options{Addr: redisAddr})}
	w.client.AddHook(w.cut)
	var err error
	w.locker, err = stockade.NewLocker(w.client, stockade.LockOptions{Prefix: "orders", TTL: time.Second, RedisTimeout: 200 * time.Millisecond})
	if err != nil {
		w.client.Close()
		return nil, err
	}
	return w, nil
}

func (w *worker) close() {
	w.locker.Close()
	w.client.Close()
}

// pay is what a service does: take the lock, and hand its fence to the database with the write.
func (w *worker) pay(ctx context.Context, orders *orders, order string) error {
	return w.payAfter(ctx, orders, order, func() {})
}

// payAfter is pay with something that comes between. The write does not look at the context of the lock, as that of a
// process that was stopped just before it could not.
func (w *worker) payAfter(ctx context.Context, orders *orders, order string, between func()) error {
	return w.locker.Do(ctx, order, func(_ context.Context, fence int64) error {
		between()
		return orders.pay(ctx, order, w.name, fence)
	})
}
