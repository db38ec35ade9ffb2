package hosttest

import (
	"fmt"
	"os"
	"path/filepath"
)

// The roles of the test binary, by the name that it is called by.
const (
	roleInit   = "hosttest-init"   // process 1 of a host
	roleEnter  = "hosttest-enter"  // a command on a host, as seen outside
	roleServer = "hosttest-server" // runs commands for agents of other hosts
	roleAgent  = "hosttest-agent"  // runs a command on another host, like ssh
)

// ownTmp is a file system that each host has for itself: see own.
const ownTmp = "/tmp"

// agentPath is the agent on each host.
const agentPath = ownTmp + "/" + roleAgent

// init runs the role instead of the tests. It works in every test binary that imports the package;
// a TestMain would have to call a function.
func init() {
	role := map[string]func([]string) (int, error){
		roleInit: runInit, roleEnter: runEnter, roleServer: runServer, roleAgent: runAgent,
	}[filepath.Base(os.Args[0])]
	if role == nil {
		return
	}
	code, err := role(os.Args[1:])
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", filepath.Base(os.Args[0]), err)
	}
	os.Exit(code)
}
