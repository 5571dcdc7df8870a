package prom

import (
	"testing"

	"github.com/stockade-cache/stockade/internal/redistest"
)

func TestMain(m *testing.M) { redistest.Main(m) }
