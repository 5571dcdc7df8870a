package main

import (
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/stockade-cache/stockade/bench/report"
)

// machine describes what the run runs on. What the system does not tell stays empty.
func machine(server, database string) report.Machine {
	m := report.Machine{
		CPU: field("/proc/cpuinfo", "model name"), Cores: runtime.NumCPU(), Memory: gigabytes(field("/proc/meminfo", "MemTotal")),
		OS: runtime.GOOS + "/" + runtime.GOARCH, Go: runtime.Version(), Redis: server, Origin: database,
	}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, module := range info.Deps {
			m.Modules = append(m.Modules, report.Module{Path: module.Path, Version: module.Version})
		}
	}
	return m
}

// gigabytes says in GB what the kernel says in kB.
func gigabytes(text string) string {
	var kilobytes float64
	if _, err := fmt.Sscanf(text, "%f kB", &kilobytes); err != nil {
		return text
	}
	return fmt.Sprintf("%.0f GB", kilobytes*1024/1e9)
}

// field returns what stands behind a name and a colon in a file.
func field(file, name string) string {
	text, err := os.ReadFile(file)
	if err != nil {
		return ""
	}
	for line := range strings.Lines(string(text)) {
		if key, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(key) == name {
			return strings.TrimSpace(value)
		}
	}
	return ""
}
