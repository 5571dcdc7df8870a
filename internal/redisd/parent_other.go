//go:build !linux

package redisd

import "os/exec"

// dieWithParent does nothing: other kernels do not offer it, so a killed process leaves its servers behind.
func dieWithParent(*exec.Cmd) {}
