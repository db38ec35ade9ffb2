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

// Error returns "stopped by signal: interrupt".
func (i *interrupted) Error() string { return fmt.Sprintf("stopped by signal: %v", i.sig) }

// code returns the exit code that a shell reports for a program that a signal ended.
func (i *interrupted) code() int { return 128 + int(i.sig) }

// untilSignal returns a context that SIGINT or SIGTERM ends, with an interrupted as its cause. A
// second signal ends the program at once, as usual.
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

// abortAfter aborts the world when ctx ends, so that no rank waits for a rank that ended.
//
// Owns: the caller calls release, after which the world is not aborted.
func abortAfter(ctx context.Context, w *dist.World) (release func()) {
	ended := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(ended)
		_ = w.Abort(context.Cause(ctx)) // fails only if all peers are gone
	})
	return func() {
		if !stop() {
			<-ended
		}
	}
}

// ends are the contexts that can end a rank: group after a death or an abort, signal after a
// signal.
type ends struct{ group, signal context.Context }
