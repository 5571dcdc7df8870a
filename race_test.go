//go:build race

package stockade

const raceEnabled = true
