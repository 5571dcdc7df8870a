// Package conformance measures the middleware with http-tests/cache-tests, the suite of tests for HTTP caches that their
// authors share. It has no code: its test is the harness, testdata/exceptions.json says which cases do not pass and why,
// and results.md is what was measured.
package conformance
