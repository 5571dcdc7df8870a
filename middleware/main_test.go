package middleware

import (
	"os"
	"testing"

	"github.com/stockade-cache/stockade/internal/redistest"
)

func TestMain(m *testing.M) {
	if addr := os.Getenv(processVariable); addr != "" {
		serveProcess(addr)
		return
	}
	redistest.Main(m)
}
