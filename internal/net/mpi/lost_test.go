package mpi_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/symgrad/symgrad/internal/net/mpi"
	"github.com/symgrad/symgrad/internal/net/wire"
	"github.com/symgrad/symgrad/internal/net/wire/wiretest"
)

// A process loses another one, which is alive: requests end, Close does not wait, and the launcher
// ends with an error because the process does.
func TestLoseEndsRequestsAndClose(t *testing.T) {
	each(t, func(t *testing.T, s suite) {
		out, err := s.run(t, 2, "lost")
		if err == nil || !strings.Contains(out, "ends after the loss") {
			t.Errorf("launcher: %v, want an error after the scene's message\n%s", err, out)
		}
	})
}

func lostScene() error {
	w, err := open()
	if err != nil {
		return err
	}
	if err := wiretest.Run(w); err != nil {
		return err
	}
	if w.Info().Rank == 1 {
		var r wire.Request // process 0 does not send it, and its launcher ends this process
		w.Recv(&r, 0, 1, nil)
		return errors.Join(wire.Wait(w, nil, &r), errors.New("a message that was not sent"))
	}
	var in, out, anyone, late, again wire.Request
	w.Recv(&in, 1, 1, make([]byte, 8))
	w.Recv(&anyone, wire.AnyPeer, 2, make([]byte, 8))
	w.Send(&out, 1, 3, make([]byte, 16<<20))
	w.Lose(1, "no heartbeat")
	w.Lose(1, "again")
	w.Recv(&late, 1, 1, nil)
	w.Send(&again, 1, 1, nil)
	var errs []error
	for name, r := range map[string]*wire.Request{"receive": &in, "send": &out, "later receive": &late, "later send": &again} {
		var gone *wire.PeerError
		if _, _, err := r.Result(); !r.Done() || !errors.As(err, &gone) || gone.Peer != 1 || gone.How != "no heartbeat" {
			errs = append(errs, fmt.Errorf("%s: done %t, error %v", name, r.Done(), err))
		}
	}
	if anyone.Done() {
		errs = append(errs, errors.New("a receive from any process ended"))
	}
	errs = append(errs, w.Close())
	if _, _, err := anyone.Result(); !errors.Is(err, wire.ErrClosed) {
		errs = append(errs, fmt.Errorf("receive from any process: %v", err))
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	return errors.New("ends after the loss")
}

// TestMessagesOfALostProcessEnd: of two messages of a lost process one had arrived, and only the
// header of the other. The first is received. The receive of the second ends with an error, and
// Close does not wait for a third that no receive takes.
func TestMessagesOfALostProcessEnd(t *testing.T) {
	each(t, func(t *testing.T, s suite) {
		tcp := []string{"MPIR_CVAR_NOLOCAL=1", "UCX_TLS=tcp", "OMPI_MCA_pml=ob1", "OMPI_MCA_btl=self,tcp"} // a sender must take part
		out, err := s.run(t, 2, "half", tcp...)
		if err == nil || !strings.Contains(out, "ends after the loss") {
			t.Errorf("launcher: %v, want an error after the scene's message\n%s", err, out)
		}
	})
}

func halfScene() error {
	w, err := mpi.Open(context.Background(), mpi.Config{Environ: os.Environ(), Library: os.Getenv(libraryVar), CloseTimeout: time.Hour})
	if err != nil {
		return err
	}
	if err := wiretest.Run(w); err != nil {
		return err
	}
	const large = 16 << 20
	var first, last wire.Request
	if w.Info().Rank == 1 {
		var half, dropped wire.Request
		fits := wire.Request{Fits: true}
		w.Send(&first, 0, 1, []byte("whole"))
		w.Send(&half, 0, 2, make([]byte, large))
		w.Send(&dropped, 0, 3, make([]byte, large))
		w.Send(&fits, 0, 4, make([]byte, large))
		w.Send(&last, 0, 5, nil)
		if err := wire.Wait(w, nil, &last); err != nil {
			return err
		}
		select {} // the launcher ends it
	}
	w.Recv(&last, 1, 5, nil)
	if err := wire.Wait(w, nil, &last); err != nil {
		return err
	}
	w.Lose(1, "no heartbeat")
	var half wire.Request
	word := make([]byte, 5)
	w.Recv(&first, 1, 1, word)
	w.Recv(&half, 1, 2, make([]byte, large))
	if err := wire.Wait(w, nil, &first); err != nil || string(word) != "whole" {
		return fmt.Errorf("a message that had arrived: %q, %w", word, err)
	}
	var gone *wire.PeerError
	if err := wire.Wait(w, nil, &half); !errors.As(err, &gone) || gone.Peer != 1 {
		return fmt.Errorf("a message without its end: %w", err)
	}
	if err := w.Close(); err != nil {
		return err
	}
	return errors.New("ends after the loss")
}

// TestLossDuringCloseEndsIt: process 0 waits in Close for a message that process 1 does not
// receive, and then loses it.
func TestLossDuringCloseEndsIt(t *testing.T) {
	each(t, func(t *testing.T, s suite) {
		out, err := s.run(t, 2, "lost in close")
		if err == nil || !strings.Contains(out, "ends after the loss") {
			t.Errorf("launcher: %v, want an error after the scene's message\n%s", err, out)
		}
	})
}

func lostInCloseScene() error {
	w, err := mpi.Open(context.Background(), mpi.Config{Environ: os.Environ(), Library: os.Getenv(libraryVar), CloseTimeout: time.Hour})
	if err != nil {
		return err
	}
	if err := wiretest.Run(w); err != nil {
		return err
	}
	if w.Info().Rank == 1 {
		select {} // the launcher ends it
	}
	var r wire.Request
	w.Send(&r, 1, 1, make([]byte, 16<<20))
	var in wire.Request
	w.Recv(&in, 1, 1, nil)
	closed := make(chan error)
	go func() { closed <- w.Close() }()
	for !in.Done() { // Close ends it first
		runtime.Gosched()
	}
	w.Lose(1, "no heartbeat")
	if err := <-closed; err != nil {
		return err
	}
	return errors.New("ends after the loss")
}

// TestCloseEndsWhatFits: Close ends a receive without a message, and drops a message without a
// receive, although the library has matched them.
func TestCloseEndsWhatFits(t *testing.T) {
	each(t, func(t *testing.T, s suite) {
		if out, err := s.run(t, 2, "fits"); err != nil {
			t.Errorf("%v\n%s", err, out)
		}
	})
}

func fitsScene() error {
	w, err := mpi.Open(context.Background(), mpi.Config{Environ: os.Environ(), Library: os.Getenv(libraryVar), CloseTimeout: 10 * time.Second})
	if err != nil {
		return err
	}
	if err := wiretest.Run(w); err != nil {
		return err
	}
	in, out, last := wire.Request{Fits: true}, wire.Request{Fits: true}, wire.Request{}
	if w.Info().Rank == 1 {
		w.Recv(&in, 0, 1, make([]byte, 8))
		w.Recv(&last, 0, 3, nil)
	} else {
		w.Send(&out, 1, 2, make([]byte, 16<<20))
		w.Send(&last, 1, 3, nil) // process 1 closes after the start of the message
	}
	err = errors.Join(wire.Wait(w, nil, &last), w.Close())
	if _, _, cause := in.Result(); w.Info().Rank == 1 && !errors.Is(cause, wire.ErrClosed) {
		err = errors.Join(err, fmt.Errorf("receive without a message: %w", cause))
	}
	return err
}

// No library tested reports a killed process by default: the launcher ends the job.
func TestLauncherEndsAJobOfAKilledProcess(t *testing.T) {
	each(t, func(t *testing.T, s suite) {
		if out, err := s.run(t, 3, "killed"); err == nil {
			t.Errorf("no error\n%s", out)
		}
	})
}

func killedScene() error {
	w, err := open()
	if err != nil {
		return err
	}
	if err := wiretest.Run(w); err != nil {
		return err
	}
	if w.Info().Rank == 1 {
		return syscall.Kill(os.Getpid(), syscall.SIGKILL)
	}
	var r wire.Request
	w.Recv(&r, 1, 1, nil)
	return wire.Wait(w, nil, &r)
}

// A process that does not close makes Close of the others return with an error, after its timeout.
func TestCloseGivesUpOnAProcessThatDoesNotClose(t *testing.T) {
	each(t, func(t *testing.T, s suite) {
		out, err := s.run(t, 2, "late")
		if err == nil || !strings.Contains(out, "so exit with an error") {
			t.Errorf("launcher: %v, want an error after that of Close\n%s", err, out)
		}
	})
}

func lateScene() error {
	w, err := mpi.Open(context.Background(), mpi.Config{Environ: os.Environ(), CloseTimeout: 1})
	if err != nil {
		return err
	}
	if err := wiretest.Run(w); err != nil {
		return err
	}
	if w.Info().Rank == 1 {
		select {} // the launcher ends it
	}
	var r wire.Request
	w.Send(&r, 1, 1, make([]byte, 16<<20))
	err = w.Close()
	if _, _, cause := r.Result(); !errors.Is(cause, wire.ErrClosed) {
		return fmt.Errorf("a send that was not received: %w", cause)
	}
	return err
}

// Open MPI from 5 on reports a killed process, if the launcher has fault tolerance on. The others
// then go on.
func TestFaultToleranceNamesAKilledProcess(t *testing.T) {
	s := suites[0]
	s.need(t)
	version, err := exec.Command(s.command[0], "--version").Output()
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(version), ") 4.") { // "mpirun.openmpi (OpenRTE) 4.1.4"
		t.Skipf("no fault tolerance before Open MPI 5: %s", version)
	}
	s.command = append([]string{s.command[0], "--with-ft", "ulfm"}, s.command[1:]...)
	out, _ := s.run(t, 3, "ulfm") // its status is not that of the survivors
	if n := strings.Count(out, "went on without process 1"); n != 2 {
		t.Errorf("%d processes went on, want 2\n%s", n, out)
	}
}

func ulfmScene() error {
	lost := make(chan int, 9)
	w, err := mpi.Open(context.Background(), mpi.Config{Environ: os.Environ(), OnLost: func(peer int, _ string) { lost <- peer }})
	if err != nil {
		return err
	}
	if err := wiretest.Run(w); err != nil {
		return err
	}
	rank := w.Info().Rank
	if rank == 1 {
		return syscall.Kill(os.Getpid(), syscall.SIGKILL)
	}
	var in, anyone, out, late wire.Request
	w.Recv(&in, 1, 1, make([]byte, 8))
	w.Recv(&anyone, wire.AnyPeer, 2, make([]byte, 8))
	var gone *wire.PeerError
	if err := wire.Wait(w, nil, &in); !errors.As(err, &gone) || gone.Peer != 1 {
		return fmt.Errorf("receive of the killed process: %w", err)
	}
	w.Send(&late, 1, 1, nil)
	if _, _, err := late.Result(); !errors.As(err, &gone) {
		return fmt.Errorf("send to the killed process: %w", err)
	}
	w.Send(&out, 2-rank, 2, make([]byte, 8))
	if err := wire.Wait(w, nil, &out, &anyone); err != nil {
		return fmt.Errorf("between survivors: %w", err)
	}
	if p := <-lost; p != 1 || len(lost) != 0 {
		return fmt.Errorf("OnLost of process %d, then %d more", p, len(lost))
	}
	fmt.Println("went on without process 1")
	return w.Close()
}
