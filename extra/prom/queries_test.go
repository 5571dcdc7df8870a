package prom

import (
	_ "github.com/VictoriaMetrics/metricsql"
	_ "go.yaml.in/yaml/v3"
)
