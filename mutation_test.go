package stockade

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stockade-cache/stockade/internal/redistest"
	"github.com/stockade-cache/stockade/internal/script"
)

// Each clause of a step that a mutation takes out is needed: something notices. It is the histories, or where the
// damage is none that a reader sees, the scenario of the invariant.
func TestMutations(t *testing.T) {
	for _, m := range []struct {
		name           string
		step, old, new string
		noticed        func(t *testing.T) error
	}{
		{
			"commit checks nothing", "commit",
			"if is_mine(lease, ARGV[1] .. ARGV[2]) then", "lease = lease or ''\nif true then",
			inHistories(nil),
		}, {
			"commit checks the token without the stamp", "commit",
			"is_mine(lease, ARGV[1] .. ARGV[2])", "is_mine(lease, ARGV[1])",
			in(commitAfterACopiedAcquire),
		}, {
			"touch checks nothing", "touch",
			"if is_mine(lease, ARGV[1] .. ARGV[2]) then", "lease = lease or ''\nif true then",
			in(foreignTouch),
		}, {
			"touch does not look at the head", "touch",
			"head ~= ARGV[6]", "false",
			in(touchOfAnEvictedValue),
		}, {
			"invalidate leaves the lease", "invalidate",
			"KEYS[1], KEYS[2], KEYS[3]", "KEYS[1], KEYS[3]",
			inHistories(nil),
		}, {
			"invalidate leaves the value", "invalidate",
			"KEYS[1], KEYS[2], KEYS[3]", "KEYS[2], KEYS[3]",
			inHistories(nil),
		}, {
			"invalidate leaves the failure", "invalidate",
			"KEYS[1], KEYS[2], KEYS[3]", "KEYS[1], KEYS[2]",
			in(invalidatedFailure),
		}, {
			"set leaves the lease", "set",
			"redis.call('DEL', KEYS[2], KEYS[3])", "redis.call('DEL', KEYS[3])",
			inHistories(byOneWriter),
		}, {
			"set happens late", "set",
			"now > tonumber(ARGV[3])", "false",
			inHistories(byOneWriter),
		}, {
			"set happens late", "set",
			"now > tonumber(ARGV[3])", "false",
			in(lateSet),
		}, {
			"set makes a value that does not expire", "set",
			"ARGV[1], 'PX', ARGV[2])", "ARGV[1])",
			inHistories(byOneWriter),
		}, {
			"acquire does not know its own token", "acquire",
			"is_mine(lease, ARGV[1])", "false",
			in(lostReplyOf("acquire")),
		}, {
			"acquire grants its own token anew", "acquire",
			"string.sub(lease, 17, 32)}\nend\nawait", "string.format('%016.0f', now + 1)}\nend\nawait",
			in(lostReplyOf("acquire")),
		}, {
			"acquire happens late", "acquire",
			"now > tonumber(ARGV[3])", "false",
			in(lateAcquire),
		}, {
			"acquire takes the lease of another", "acquire",
			"if not lease then", "if not is_mine(lease, ARGV[1]) then\nredis.call('DEL', KEYS[2])",
			in(oneLoadPerExpiry),
		}, {
			"acquire does not look for the value", "acquire",
			"if value and", "if false and",
			in(acquireOfAStoredValue),
		}, {
			"release takes the lease of another", "release",
			"not is_mine(lease, ARGV[1])", "not lease",
			in(foreignToken),
		}, {
			"fail takes the lease of another", "fail",
			"not is_mine(lease, ARGV[1] .. ARGV[2])", "not lease",
			in(foreignToken),
		}, {
			"drop takes the lease of another", "drop",
			"not is_mine(lease, ARGV[1] .. ARGV[2])", "not lease",
			in(foreignToken),
		}, {
			"renew re-creates a lease", "renew",
			"return {0, now}", "redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2])",
			in(renewalOfALostLease),
		}, {
			"renew does nothing", "renew",
			"redis.call('PEXPIRE'", "local _ = ('PEXPIRE'",
			in(lostReplyOf("renew")),
		},
	} {
		t.Run(m.name, func(t *testing.T) {
			defer script.Mutate(m.step, m.old, m.new)()
			if err := m.noticed(t); err == nil {
				t.Error("nothing noticed it")
			} else {
				t.Log(err)
			}
		})
	}
}

// in runs a scenario on the fake.
func in(s scenario) func(t *testing.T) error {
	return func(t *testing.T) (err error) {
		synctest.Test(t, func(t *testing.T) { err = s(t, redistest.Fake(t)) })
		return err
	}
}

// inHistories makes histories until one is wrong, of plans that have faults and what the change says. Without a mutation
// TestHistories finds none.
func inHistories(change func(*plan)) func(t *testing.T) error {
	return func(t *testing.T) error {
		for seed := range uint64(300) { // the slowest takes 15; goroutines differ
			p := newPlan(seed)
			p.faults, p.load, p.opts.TTL, p.opts.WhenRedisFails = true, 20*time.Millisecond, time.Second, ReturnError
			if change != nil {
				change(&p)
			}
			if err := playInBubble(t, p); err != nil {
				return err
			}
		}
		return nil
	}
}

func byOneWriter(p *plan) { p.sets, p.writers, p.freeze = true, 1, 100*time.Millisecond }

// What is no step cannot be mutated: here the code is misled instead.
func TestMutationsOfTheCode(t *testing.T) {
	for name, s := range map[string]scenario{
		"arrivals are told apart by a clock":     func(t *testing.T, s redistest.Server) error { return joinOlderLoad(t, s, true) },
		"a trip that has left counts as waiting": func(t *testing.T, s redistest.Server) error { return hitOfATripThatHasLeft(t, s, true) },
	} {
		if err := in(s)(t); err == nil {
			t.Errorf("%s: nothing noticed it", name)
		}
	}
}
