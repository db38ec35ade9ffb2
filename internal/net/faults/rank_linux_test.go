package faults

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/symgrad/symgrad/checkpoint"
	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/dist/backend"
	"github.com/symgrad/symgrad/dist/launch"
	"github.com/symgrad/symgrad/internal/net/ucx"
	"github.com/symgrad/symgrad/tensor"
)

// The phases of a job.
const (
	idle       = "idle"       // no operation runs
	allreduce  = "allreduce"  // one after the other
	saving     = "checkpoint" // one rank has not begun, so that rank 0 waits for its file
	meeting    = "meeting"    // one rank has not come to the rendezvous
	connecting = "connecting" // one rank has met the others, and not begun UCX
	joining    = "joining"    // one rank has begun UCX, and not exchanged the names of hosts
)

// patience bounds all waits of a rank for its peers.
const patience = 30 * time.Second

// meetingTime is patience for ranks in MPI_Init, which never notice that a host is gone.
const meetingTime = 15 * time.Second

// meetingTime returns the longest wait of a rank for the others to meet.
func (a *actor) meetingTime() time.Duration {
	if a.Phase == meeting && a.env.Launcher != launch.Symgrad {
		return meetingTime
	}
	return patience
}

// rankArg is the argument of the role of a rank.
type rankArg struct {
	Phase  string
	Late   int    // the rank that is held back in some phases
	Socket string // of the test, in a folder that all hosts see
	Folder string // for checkpoints
}

// event is a message of a rank to the test.
type event struct {
	Rank int
	Kind string
	Text string // of an error
	Code int    // exit code
}

// The kinds of events.
const (
	began = "began" // the rank enters the phase
	held  = "held"  // it waits for the command open
	step  = "step"  // some operations of the phase have ended
	broke = "broke" // the phase ended with an error
	ended = "ended" // the rank exits
)

// The commands of a test.
const (
	die    = "die"    // kill -9
	open   = "open"   // end the hold
	finish = "finish" // end the phase
)

// actor is a rank that obeys a test.
type actor struct {
	rankArg
	env      launch.Env
	mu       sync.Mutex
	out      *json.Encoder
	opened   chan struct{}
	finished chan struct{}
}

func playRank(arg []byte) int {
	a := actor{opened: make(chan struct{}), finished: make(chan struct{})}
	err := json.Unmarshal(arg, &a.rankArg)
	if err == nil {
		a.env, err = launch.Current()
	}
	if err != nil {
		return failed(err)
	}
	conn, err := net.Dial("unix", a.Socket)
	if err != nil {
		return failed(err)
	}
	a.out = json.NewEncoder(conn)
	go a.obey(conn)
	marks := launch.OpenMarks(a.env)
	err = errors.Join(marks.Begin(0), a.play())
	if err == nil {
		err = marks.Succeed()
	}
	err = errors.Join(err, marks.Close())
	text, code := "", launch.ExitCode(err)
	if err != nil {
		text = err.Error()
		a.env.LastWord(os.Stderr, fmt.Sprintf("rank %d of %d: %s", a.env.Rank, a.env.Size, text))
	}
	a.say(ended, text, code)
	return code
}

func (a *actor) say(kind, text string, code int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	_ = a.out.Encode(event{a.env.Rank, kind, text, code}) // the test may have ended
}

// obey follows the commands of the test.
func (a *actor) obey(conn io.Reader) {
	for lines := bufio.NewScanner(conn); lines.Scan(); {
		switch lines.Text() {
		case die:
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		case open:
			close(a.opened)
		case finish:
			close(a.finished)
		}
	}
}

// hold waits for the command open if this rank is the late one.
func (a *actor) hold() {
	if a.env.Rank != a.Late {
		return
	}
	a.say(held, "", 0)
	<-a.opened
}

// play runs the phase, and returns the error that ends it.
func (a *actor) play() error {
	if a.before() {
		a.say(began, "", 0)
		if err := a.lag(); err != nil {
			return err
		}
	}
	w, err := backend.Open(context.Background(), backend.Config{InitTimeout: a.meetingTime(), StepTimeout: patience})
	if err != nil {
		return err
	}
	if !a.before() {
		a.say(began, "", 0)
	}
	err = map[string]func(*dist.World) error{idle: a.wait, saving: a.save, allreduce: a.sum, meeting: a.sum}[a.Phase](w)
	if err != nil {
		a.say(broke, err.Error(), 0)
	}
	return errors.Join(err, w.Close())
}

// before reports whether the phase is before the world.
func (a *actor) before() bool {
	return a.Phase == meeting || a.Phase == connecting || a.Phase == joining
}

// lag holds the late rank in a phase before the world.
func (a *actor) lag() error {
	if a.env.Rank != a.Late || a.Phase == meeting {
		a.hold()
		return nil
	}
	store, leave, err := launch.Rendezvous(context.Background(), a.env, launch.Config{Timeout: patience})
	if err != nil {
		return err
	}
	defer leave.Close()
	if a.Phase == joining {
		w, err := ucx.Open(context.Background(), a.env.Rank, a.env.Size, store, ucx.Config{Job: a.env.Job, Transports: "^sm"})
		if err != nil {
			return err
		}
		defer w.Close()
	}
	a.hold() // for good
	return nil
}

// wait is the phase idle.
func (a *actor) wait(w *dist.World) error {
	ctx, release := w.Context(context.Background())
	defer release()
	select {
	case <-a.finished:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	return done(w.Barrier())
}

// done waits for an operation.
func done(work dist.Work, err error) error {
	if err != nil {
		return err
	}
	return work.Wait()
}

// sum is the phase allreduce: it checks sums until all ranks have got the command finish.
func (a *actor) sum(w *dist.World) error {
	const n = 64 << 10
	x := make([]float32, n)
	for round := 0; ; round++ {
		for i := range x {
			x[i] = float32(w.Rank() + i%7 + round%5)
		}
		x[0] = 0
		select {
		case <-a.finished:
			x[0] = 1
		default:
		}
		if err := done(w.AllReduce(tensor.Of(x), tensor.Of(x), dist.Sum)); err != nil {
			return err
		}
		ranks := float32(w.Size())
		for i := range x[1:] {
			if want := ranks*(ranks-1)/2 + ranks*float32((i+1)%7+round%5); x[i+1] != want {
				return fmt.Errorf("element %d of sum %d: %v, want %v", i+1, round, x[i+1], want)
			}
		}
		if x[0] == ranks {
			return nil
		}
		if round%8 == 0 {
			a.say(step, "", 0)
		}
	}
}

// save is the phase checkpoint. The late rank is held before the first one.
func (a *actor) save(w *dist.World) (err error) {
	ctx, release := w.Context(context.Background())
	defer release()
	s, err := checkpoint.New(checkpoint.Options{
		Dir: filepath.Join(a.Folder, "checkpoints"), Keep: 2, Sharded: true, Rank: w.Rank(), Size: w.Size(), Timeout: patience, Context: ctx,
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	if err := done(w.Barrier()); err != nil {
		return err
	}
	const n = 64 << 10
	t := checkpoint.Tensor{Name: "w", Role: checkpoint.Param, DType: tensor.F32, Shape: []int{n * w.Size()}}
	flag := []float32{0}
	for number := 1; ; number++ {
		if number == 1 {
			a.hold()
		}
		run := checkpoint.Run{Tensor: t, Offset: n * w.Rank(), Len: n, Data: tensor.Of(make([]float32, n))}
		if err := s.Save(checkpoint.Meta{Step: number}, []checkpoint.Run{run}); err != nil {
			return err
		}
		flag[0] = 0
		select {
		case <-a.finished:
			flag[0] = 1
		default:
		}
		if err := done(w.AllReduce(tensor.Of(flag), tensor.Of(flag), dist.Sum)); err != nil {
			return err
		}
		if flag[0] == float32(w.Size()) {
			return nil
		}
		a.say(step, "", 0)
	}
}
