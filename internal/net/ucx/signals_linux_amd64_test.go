package ucx

import (
	"os"
	"os/signal"
	"runtime"
	"syscall"
	"testing"

	"github.com/symgrad/symgrad/internal/dl/dltest"
)

// hidden is a nil pointer that the compiler does not see.
var hidden *int

func TestSignalsStayWithGo(t *testing.T) {
	if !dltest.Alone(t) {
		return
	}
	var before, after [1 + signals]sigaction
	for s := 1; s <= signals; s++ {
		action(s, nil, &before[s])
	}
	w := open(t, 1, nil)[0]
	defer w.Close()
	for s := 1; s <= signals; s++ {
		if action(s, nil, &after[s]); after[s] != before[s] {
			t.Errorf("signal %d has another handler", s)
		}
	}
	func() {
		defer func() {
			if _, ok := recover().(runtime.Error); !ok {
				t.Error("no panic for a nil dereference")
			}
		}()
		*hidden = 1
	}()
	caught := make(chan os.Signal, 2)
	for _, s := range []syscall.Signal{syscall.SIGUSR1, syscall.SIGHUP} {
		signal.Notify(caught, s)
		if err := syscall.Kill(os.Getpid(), s); err != nil {
			t.Fatal(err)
		}
		if got := <-caught; got != s {
			t.Errorf("got %v, want %v", got, s)
		}
	}
}
