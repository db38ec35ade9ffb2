package train

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/symgrad/symgrad/dist"
)

// interrupted is the end of a run by a signal.
type interrupted struct{ sig syscall.Signal }

// Error is "stopped by interrupt".
func (i *interrupted) Error() string { return fmt.Sprintf("stopped by signal: %v", i.sig) }

// code returns the exit code of a program that a signal ended, as a shell reports it.
func (i *interrupted) code() int { return 128 + int(i.sig) }

// untilSignal is a context that SIGINT or SIGTERM ends, with an interrupted as its cause. After the
// first signal another one ends the program at once, as it would have without this.
//
// Owns: the caller calls release.
func untilSignal(parent context.Context) (ctx context.Context, release func()) {
	ctx, cancel := context.WithCancelCause(parent)
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		defer signal.Stop(signals)
		select {
		case sig := <-signals:
			cancel(&interrupted{sig.(syscall.Signal)})
		case <-ctx.Done():
		}
	}()
	return ctx, func() {
		cancel(nil)
		<-ended
	}
}

// abortAfter aborts the world when ctx ends, so that no rank waits for one that will not come.
//
// Owns: the caller calls release, after which nothing is aborted any more.
func abortAfter(ctx context.Context, w *dist.World) (release func()) {
	ended := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(ended)
		_ = w.Abort(context.Cause(ctx)) // fails only if no other rank is left
	})
	return func() {
		if !stop() {
			<-ended
		}
	}
}

// ends has the contexts that end a rank from outside: of the group, by a death or an abort, and of
// a signal.
type ends struct{ group, signal context.Context }
