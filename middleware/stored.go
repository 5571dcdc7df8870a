package middleware

import (
	"crypto/rand"
	"encoding/binary"
	"net/http"
	"time"

	"github.com/stockade-cache/stockade"
)

// stored is what a key holds: one of three.
type stored struct {
	ID    uint64 // tells it from every other
	Page  *page
	Mark  *mark
	Index *index
}

// entry is what a key holds, and what the cache knows of it.
type entry = stockade.Entry[*stored]

// page is a response that may be shared.
type page struct {
	Status     int
	Header     http.Header
	Body       []byte
	Vary       []string      // names of the request's fields that selected it, sorted
	Variant    string        // digest of their values
	Age        time.Duration // when its run began: how old it was by then
	Fresh      time.Duration // its freshness lifetime
	Stale      time.Duration // how long after that it may be served while it is renewed
	OnError    time.Duration // how long after its freshness it may be served when the handler fails
	Validate   bool          // no use of it without asking the handler
	Authorized bool          // requests with Authorization may have it
	Tags       []string
	Epoch      int64 // of the tags, when its run began
	Round      int64 // of the index, when its run began
}

// mark says that a response could not be shared: those who ask for the key do not wait for each other while it lives.
type mark struct {
	Reason string
}

// index says what tells the variants of a URL apart. Their keys carry its generation, so that without it nobody finds them.
type index struct {
	Generation string
	Vary       []string      // names of the fields that select a variant, sorted
	Life       time.Duration // of the index
	Round      int64         // grows when all variants become stale

	first *page // what the run found that made the index: only known where it ran
}

// age is how old a page is (RFC 9111 4.2.3). The time since its run began, which the cache knows, includes both the delay
// of the response and the residence here.
func (p *page) age(e entry) time.Duration { return p.Age + e.Age }

// validators are what a later response may be compared with.
func validators(h http.Header) bool { return h.Get("Etag") != "" || h.Get("Last-Modified") != "" }

func newID() uint64 {
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails: crypto/rand ends the program instead
	return binary.LittleEndian.Uint64(b[:])
}

func storedPage(p *page) *stored    { return &stored{ID: newID(), Page: p} }
func storedMark(why string) *stored { return &stored{ID: newID(), Mark: &mark{why}} }
