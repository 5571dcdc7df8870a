//go:build !race

package stockade

const raceEnabled = false
