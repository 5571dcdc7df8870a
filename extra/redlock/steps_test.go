package redlock_test

import (
	"strconv"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/stockade-cache/stockade/internal/redistest"
)

// The steps of a lock, told apart by the number of their keys and arguments.
func isTake(command []string) bool   { return isStep(command, 2, 4) }
func isUnlock(command []string) bool { return isStep(command, 2, 2) }
func isRenew(command []string) bool  { return isStep(command, 1, 2) }

func isStep(command []string, keys, args int) bool {
	return (command[0] == "evalsha" || command[0] == "eval") && command[2] == strconv.Itoa(keys) && len(command) == 3+keys+args
}

// faulty puts a hook for faults on each client.
func faulty(t testing.TB, list []redis.UniversalClient) []*redistest.Faults {
	var faults []*redistest.Faults
	for _, rdb := range list {
		f := redistest.NewFaults(t)
		rdb.AddHook(f)
		faults = append(faults, f)
	}
	return faults
}
