package mpi_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/symgrad/symgrad/internal/net/mpi"
	"github.com/symgrad/symgrad/internal/net/wire"
	"github.com/symgrad/symgrad/internal/net/wire/wiretest"
)

// scenes are programs of the processes of a job. The end of a process is a nil error.
var scenes = map[string]func() error{
	"rules":         rulesScene,
	"signals":       signalsScene,
	"collector":     collectorScene,
	"refusals":      refusalsScene,
	"lost":          lostScene,
	"half":          halfScene,
	"lost in close": lostInCloseScene,
	"killed":        killedScene,
	"late":          lateScene,
	"fits":          fitsScene,
	"other":         otherScene,
	"find":          findScene,
	"pingpong":      pingpongScene,
	"ulfm":          ulfmScene,
}

func TestMPIKeepsTheRulesOfWires(t *testing.T) {
	each(t, func(t *testing.T, s suite) {
		for _, n := range []int{2, 3} {
			t.Run(fmt.Sprint(n), func(t *testing.T) { s.must(t, n, "rules") })
		}
	})
}

func rulesScene() error {
	w, err := open()
	if err != nil {
		return err
	}
	return errors.Join(wiretest.Run(w), w.Close(), w.Close())
}

// UCX and MPICH take signal handlers, with which the first of these ends the process.
func TestSignalsReachGoAfterOpen(t *testing.T) {
	each(t, func(t *testing.T, s suite) { s.must(t, 2, "signals") })
}

func signalsScene() error {
	w, err := open()
	if err != nil {
		return err
	}
	for range 2 { // before messages and after them
		if err := signalsWork(); err != nil {
			return err
		}
		if err := wiretest.Run(w); err != nil {
			return err
		}
	}
	return w.Close()
}

func signalsWork() (err error) {
	if r := dereference(nil); r == nil {
		return errors.New("a nil dereference did not panic")
	}
	got := make(chan os.Signal, 1)
	signal.Notify(got, syscall.SIGUSR1)
	defer signal.Stop(got)
	if err := syscall.Kill(os.Getpid(), syscall.SIGUSR1); err != nil {
		return err
	}
	select {
	case <-got:
	case <-time.After(time.Minute):
		return errors.New("SIGUSR1 did not arrive")
	}
	return exec.Command("true").Run()
}

// dereference returns what reading p panics with.
func dereference(p *int) (r any) {
	defer func() { r = recover() }()
	_ = *p
	return nil
}

// Memory of messages is Go memory, which the collector must not free while a message moves.
func TestMessagesSurviveTheCollector(t *testing.T) {
	each(t, func(t *testing.T, s suite) { s.must(t, 2, "collector") })
}

func collectorScene() error {
	w, err := open()
	if err != nil {
		return err
	}
	stop, stopped := make(chan bool), make(chan bool)
	go func() {
		defer close(stopped)
		for {
			select {
			case <-stop:
				return
			default:
				runtime.GC()
			}
		}
	}()
	err = collectorWork(w)
	close(stop)
	<-stopped
	return errors.Join(err, w.Close())
}

func collectorWork(w *mpi.Wire) error {
	peer := 1 - w.Info().Rank
	for k := range 300 {
		n := []int{8, 700, 9 << 10, 100 << 10, 1 << 20}[k%5]
		in, out := new(wire.Request), new(wire.Request)
		buf := make([]byte, n)
		w.Recv(in, peer, 1, buf)
		w.Send(out, peer, 1, filled(n, byte(k))) // only the wire has this memory
		if err := wire.Wait(w, nil, in, out); err != nil {
			return err
		}
		for i, b := range buf {
			if b != byte(k) {
				return fmt.Errorf("message %d: byte %d of %d is %d, want %d", k, i, n, b, byte(k))
			}
		}
	}
	return nil
}

func filled(n int, b byte) []byte {
	data := make([]byte, n)
	for i := range data {
		data[i] = b
	}
	return data
}

func TestRequestsThatCannotBeginAreErrors(t *testing.T) {
	each(t, func(t *testing.T, s suite) { s.must(t, 2, "refusals") })
}

func refusalsScene() error {
	w, err := open()
	if err != nil {
		return err
	}
	var errs []error
	check := func(name, text string, r *wire.Request) {
		if _, _, err := r.Result(); !r.Done() || err == nil || !strings.Contains(err.Error(), text) {
			errs = append(errs, fmt.Errorf("%s: done %t, error %v, want %q", name, r.Done(), err, text))
		}
	}
	want := func(name, text string, start func(r *wire.Request)) {
		r := new(wire.Request)
		start(r)
		check(name, text, r)
	}
	info := w.Info()
	want("peer", "no process 2: the world has 2", func(r *wire.Request) { w.Send(r, 2, 1, nil) })
	want("negative peer", "no process -1", func(r *wire.Request) { w.Send(r, wire.AnyPeer, 1, nil) })
	want("source", "no process 7", func(r *wire.Request) { w.Recv(r, 7, 1, nil) })
	want("tag", "is too large", func(r *wire.Request) { w.Recv(r, 0, info.Tags, nil) })
	want("long", "send at most", func(r *wire.Request) { w.Send(r, 1, 1, make([]byte, wire.MaxBytes+1)) })
	if _, err := open(); err == nil || !strings.Contains(err.Error(), "begun in this process already") {
		errs = append(errs, fmt.Errorf("second Open: %v", err))
	}
	if info.Engine != "mpi" || info.Tags < 1<<15 || !strings.Contains(info.Library, "(/") {
		errs = append(errs, fmt.Errorf("info %+v", info))
	}
	pending := new(wire.Request)
	w.Recv(pending, 1-info.Rank, 9, make([]byte, 8))
	errs = append(errs, w.Close())
	check("pending at Close", wire.ErrClosed.Error(), pending)
	want("send after Close", wire.ErrClosed.Error(), func(r *wire.Request) { w.Send(r, 1, 1, nil) })
	want("receive after Close", wire.ErrClosed.Error(), func(r *wire.Request) { w.Recv(r, 1, 1, nil) })
	if w.Progress() {
		errs = append(errs, errors.New("progress after Close"))
	}
	return errors.Join(errs...)
}
