package faults

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/symgrad/symgrad/dist/launch"
)

// roles are the programs that this test binary can be. The argument is a value as JSON.
var roles = map[string]func(arg []byte) int{"rank": playRank, "launcher": playLauncher, "guest": playGuest}

// together is the number of cases that run at the same time. They mostly wait.
const together = "6"

func TestMain(m *testing.M) {
	if len(os.Args) == 3 {
		if play := roles[os.Args[1]]; play != nil {
			os.Exit(play([]byte(os.Args[2])))
		}
	}
	if err := flag.Set("test.parallel", together); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}

// grace is the time for ranks to end after a failure, on a machine that also does other work. Half
// of it is before a signal.
const grace = 6 * time.Second

// launcher is the role of symgrad run on one host.
type launcher struct {
	Node, Nodes int // 1 of 1 for the supervisor of another launcher
	N           int // ranks of this host
	Store       string
	Secret      string
	Program     []string
	MaxRestarts int
}

func playLauncher(arg []byte) int {
	var l launcher
	if err := json.Unmarshal(arg, &l); err != nil {
		return failed(err)
	}
	cfg := launch.SpawnConfig{
		Program: l.Program[0], Args: l.Program[1:], N: l.N, Node: l.Node, Nodes: l.Nodes, Store: l.Store, Wait: time.Minute,
		MaxRestarts: l.MaxRestarts, Pause: 1, Grace: grace,
	}
	if l.Nodes > 1 {
		var err error
		if cfg.Secret, err = launch.ParseSecret([]byte(l.Secret)); err != nil {
			return failed(err)
		}
	}
	res, err := launch.Spawn(context.Background(), cfg)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	if err != nil && res.Code == 0 {
		return 1
	}
	return res.Code
}

func failed(err error) int {
	fmt.Fprintln(os.Stderr, err)
	return 1
}
