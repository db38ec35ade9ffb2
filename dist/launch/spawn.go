package launch

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/symgrad/symgrad/dist"
)

// DefaultPatience is the default of SpawnConfig.Patience.
const DefaultPatience = 30 * time.Second

// MostSpawned is the largest number of ranks of Spawn, so that a mistyped number does not fill a
// host with processes.
const MostSpawned = 4096

// SpawnConfig is a job for Spawn: program, ranks, time limits and output.
type SpawnConfig struct {
	Program  string        // a path, relative to this process's working directory, or a name to look up in PATH
	Args     []string      // its arguments, without the program's name
	N        int           // number of ranks, at most MostSpawned
	Env      []string      // "name=value"; nil means this process's. The SYMGRAD_ variables of the ranks are set in it.
	Dir      string        // working directory; "" means this process's
	Master   string        // host:port for the store; "" means 127.0.0.1 and a free port
	Grace    time.Duration // from the first failure to the end of everything; 0 means 2 s
	Patience time.Duration // from a signal that was passed on to the kill; 0 means DefaultPatience
	LogDir   string        // folder for rank-0.log, rank-1.log, ...; "" means no logs
	Bind     string        // BindCore gives each rank its own cores; "" and BindNone leave ranks on all cores
	Handover []byte        // data that each rank reads with Env.Handover, at most MostHandover bytes; nil means none

	MaxRestarts int           // times that a failed job begins again; 0 means never
	Pause       time.Duration // before a restart; doubles without progress, up to 30 s; 0 means DefaultPause

	Stdout io.Writer // nil means os.Stdout
	Stderr io.Writer // nil means os.Stderr

	// A job on several hosts has a launcher on each. These settings are for Nodes > 1.
	Nodes  int           // number of hosts; 0 and 1 mean this one
	Node   int           // index of this host, 0 to Nodes-1; that of 0 serves the store
	Store  string        // host:port at which all hosts reach node 0; node 0 listens there, or at Master
	Secret Secret        // of the job, equal on all hosts
	Wait   time.Duration // until all hosts have joined; 0 means DefaultWait
}

// Result is the end of a job.
type Result struct {
	Code     int          // for os.Exit: the culprit's, 128+signal if one ended it or the job, 0 on success
	Culprit  int          // the first rank that failed, except by the loss of a peer; -1 if none
	Restarts int          // times that the job began again; the rest is of the last time
	Ranks    []RankResult // of this host, by rank; fewer than N if the job ended before all were started
}

// RankResult is the end of one rank.
type RankResult struct {
	Rank    int
	PID     int
	Code    int    // its exit code, or 128+signal
	How     string // "exited with code 3", "was killed by signal: killed"; also lack of memory, with limit and use
	Stopped bool   // the launcher sent it a signal before it ended
	Step    int    // the last that it marked by Marks.Begin, or NoStep
}

// Validate checks c.
// Errors: dist.ErrInvalid.
func (c SpawnConfig) Validate() error {
	switch {
	case c.Program == "":
		return fmt.Errorf("launch: no program to run: %w", dist.ErrInvalid)
	case c.N < 1 || c.N > MostSpawned:
		return fmt.Errorf("launch: %d ranks: want 1 to %d: %w", c.N, MostSpawned, dist.ErrInvalid)
	case c.Bind != "" && c.Bind != BindNone && c.Bind != BindCore:
		return fmt.Errorf("launch: bind %q: use %s or %s: %w", c.Bind, BindCore, BindNone, dist.ErrInvalid)
	case len(c.Handover) > MostHandover:
		return fmt.Errorf("launch: handover of %d B: want at most %d: %w", len(c.Handover), MostHandover, dist.ErrInvalid)
	case c.Grace < 0 || c.Patience < 0 || c.Pause < 0:
		return fmt.Errorf("launch: grace %v, patience %v, pause %v: want 0 or more: %w", c.Grace, c.Patience, c.Pause, dist.ErrInvalid)
	case c.MaxRestarts < 0:
		return fmt.Errorf("launch: %d restarts: want 0 or more: %w", c.MaxRestarts, dist.ErrInvalid)
	case c.Master != "" && !validListenAddress(c.Master):
		return fmt.Errorf("launch: master %q: want host:port, port 0 to 65535: %w", c.Master, dist.ErrInvalid)
	case c.Nodes > 1:
		return c.validateNodes()
	case c.Nodes < 0 || c.Node != 0:
		return fmt.Errorf("launch: node %d of %d: want 0 to %d: %w", c.Node, c.Nodes, max(c.Nodes-1, 0), dist.ErrInvalid)
	}
	return nil
}

// validateNodes checks the settings for several hosts.
func (c SpawnConfig) validateNodes() error {
	switch {
	case c.Nodes > maxRanks:
		return fmt.Errorf("launch: %d nodes: want at most %d: %w", c.Nodes, maxRanks, dist.ErrInvalid)
	case c.Node < 0 || c.Node >= c.Nodes:
		return fmt.Errorf("launch: node %d of %d: want 0 to %d: %w", c.Node, c.Nodes, c.Nodes-1, dist.ErrInvalid)
	case !validAddress(c.Store):
		return fmt.Errorf("launch: store %q: want host:port of node 0, port 1 to 65535: %w", c.Store, dist.ErrInvalid)
	case c.Secret.none():
		return fmt.Errorf("launch: %d nodes need a job secret, in a file or in %s: %s: %w", c.Nodes, secretVar, secretHelp, dist.ErrInvalid)
	case c.Wait < 0:
		return fmt.Errorf("launch: wait %v: want 0 or more: %w", c.Wait, dist.ErrInvalid)
	}
	return nil
}

// withDefaults returns c with defaults for its zero values, and the program's path.
func (c SpawnConfig) withDefaults() (SpawnConfig, error) {
	if err := c.Validate(); err != nil {
		return c, err
	}
	path, err := exec.LookPath(c.Program)
	if err != nil {
		var named *exec.Error // has the name, too
		if errors.As(err, &named) {
			err = named.Err
		}
		return c, fmt.Errorf("launch: program %q: %w: %w", c.Program, err, dist.ErrInvalid)
	}
	if c.Dir != "" { // package os/exec takes a relative path from there on
		if path, err = filepath.Abs(path); err != nil {
			return c, fmt.Errorf("launch: program %q: %w", c.Program, err)
		}
	}
	c.Program = path
	if c.Env == nil {
		c.Env = os.Environ()
	}
	if c.Grace == 0 {
		c.Grace = 2 * time.Second
	}
	if c.Patience == 0 {
		c.Patience = DefaultPatience
	}
	if c.Pause == 0 {
		c.Pause = DefaultPause
	}
	if c.Wait == 0 {
		c.Wait = DefaultWait
	}
	if c.Stdout == nil {
		c.Stdout = os.Stdout
	}
	if c.Stderr == nil {
		c.Stderr = os.Stderr
	}
	return c, nil
}

// Spawn runs a program as N ranks on this host and returns when all of them, and the processes they
// started, have ended. It serves the store through which ranks meet, passes on their output, and
// prints a report to Stderr when the job fails.
//
// Processes. Each rank leads its own process group, has an empty stdin, and is killed when this
// process dies in any way. A rank inside a wrapper that does not exec it (sh, go run) only notices
// at its next use of the store. Processes that a rank started are killed when it ends; those that
// left its group, but keep the job's environment, at the end. To find those, Spawn makes this
// process a child subreaper permanently. The kernel kills a child with the thread that started it,
// so the calling goroutine keeps its thread until the end.
//
// Cores. With BindCore each rank has equally many cores of its own, with all their threads.
//
// Output. Lines of rank 0 are passed on unchanged, lines of other ranks begin with "[2] ". Lines
// are never mixed, and broken after 64 KiB. If Stdout is a terminal, rank 0 gets its width and may
// draw a progress bar with carriage returns; other lines are written above it. In lines of other
// ranks a carriage return discards the line so far.
//
// Failure. When a rank exits with a code other than 0 or is killed, the others learn it through the
// store. After half of Grace those that still run get SIGTERM, after seven eighths SIGKILL, each
// with its process group.
//
// Restarts. With MaxRestarts a failed job begins again, with a new store, new credentials and a new
// job id. Ranks find their state themselves, as in the newest checkpoint; Env.Restarts says that
// there may be one. The job does not begin again after a signal, or if the same rank fails twice in
// a row at the same step, see Marks. If Program is mpirun or another foreign launcher, exit code 0
// is a failure unless rank 0 called Marks.Succeed.
//
// Signals. SIGINT, SIGTERM, SIGHUP and SIGQUIT, unless ignored, are passed on to all ranks once. A
// second one, or the end of Patience, kills. The end of ctx is SIGTERM, and SIGKILL within Grace.
// When the reader of the output pipe is gone, the ranks get SIGTERM, and SIGKILL after Patience.
// Result.Code is then that of SIGPIPE, unless that is ignored. When only output is still to be
// passed on, signals have their usual effect on this process again. Anything that ends the job also
// stops the starting of ranks.
//
// Returns: at the end of the job. The failure of a rank is no error but a Result.Code. Errors:
// dist.ErrInvalid; a program, port or log file that cannot be used; failed writes of output; ctx's.
func Spawn(ctx context.Context, cfg SpawnConfig) (Result, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return Result{}, err
	}
	r := newRestarts(cfg)
	for {
		end, err := spawn(ctx, cfg, r)
		end.Restarts = r.generation
		if !end.again {
			return end.Result, err
		}
		// The other hosts wait for the store of node 0, so only node 0 pauses.
		if pause := r.advance(end.blame); cfg.Node == 0 && !rest(ctx, pause) {
			return end.Result, context.Cause(ctx)
		}
	}
}

// Self runs this program, with its arguments, as cfg.N ranks, if e has no launcher and N is more
// than one. A program whose configuration sets the ranks calls it first:
//
//	if res, spawned, err := launch.Self(ctx, env, cfg); spawned { ... os.Exit(res.Code) }
//	// one rank of the job from here on
//
// A Code other than 0 is valid with an error too: 128 plus SIGPIPE comes with the error of writing
// output that has no reader.
//
// Shapes/units: cfg as in Spawn; empty Program and Args are filled in, and N may be 0. Returns:
// spawned false at once in a process that is itself a rank. Errors: those of Spawn.
func Self(ctx context.Context, e Env, cfg SpawnConfig) (res Result, spawned bool, err error) {
	if e.Launcher != None || cfg.N == 0 || cfg.N == 1 {
		return Result{}, false, nil
	}
	if cfg.Program == "" {
		if cfg.Program, err = os.Executable(); err != nil {
			return Result{}, true, fmt.Errorf("launch: this program: %w", err)
		}
		if cfg.Args == nil {
			cfg.Args = os.Args[1:]
		}
	}
	res, err = Spawn(ctx, cfg)
	return res, true, err
}

// rankVariables are the values of one rank's variables.
type rankVariables struct {
	rank, size  int
	localRank   int
	localSize   int
	node, nodes int
	job, master string
	storeFD     int
	handoverFD  int // 0 without a handover
	columns     int // of the terminal, or 0
	bound       bool
	restarts    int
	marks       string // "" without
	foreign     bool   // the program is another launcher, which numbers ranks itself
}

// env returns the environment of a rank: the job's, with the rank's variables instead of existing
// ones.
func (r rankVariables) env(job []string) []string {
	own := map[string]string{
		rankVar: strconv.Itoa(r.rank), sizeVar: strconv.Itoa(r.size),
		localRankVar: strconv.Itoa(r.localRank), localSizeVar: strconv.Itoa(r.localSize),
		nodeVar: strconv.Itoa(r.node), nodesVar: strconv.Itoa(r.nodes),
		jobVar: r.job, masterVar: r.master, storeFDVar: strconv.Itoa(r.storeFD),
	}
	if r.foreign { // its ranks must not take these for theirs
		clear(own)
	}
	if r.rank == 0 && r.columns > 0 && !r.foreign {
		own[columnsVar] = strconv.Itoa(r.columns)
	}
	if r.handoverFD > 0 && !r.foreign {
		own[handoverVar] = strconv.Itoa(r.handoverFD)
	}
	if r.bound && !r.foreign {
		own[boundVar] = BindCore
	}
	if r.restarts > 0 {
		own[restartsVar] = strconv.Itoa(r.restarts)
	}
	if r.marks != "" {
		own[marksVar] = r.marks
	}
	var out []string
	for _, s := range job {
		if !isOwnVariable(s) || strings.HasPrefix(s, hostVar+"=") {
			out = append(out, s)
		}
	}
	for _, name := range Variables() {
		if v, ok := own[name]; ok {
			out = append(out, name+"="+v)
		}
	}
	return out
}
