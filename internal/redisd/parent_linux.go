package redisd

import (
	"os/exec"
	"syscall"
)

// dieWithParent has the kernel kill the child when this process ends in whatever way.
func dieWithParent(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}
