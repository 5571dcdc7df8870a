//go:build !linux

package redistest

import "os/exec"

// dieWithParent does nothing: other kernels do not offer it, so a killed test binary leaves its servers behind.
func dieWithParent(*exec.Cmd) {}
