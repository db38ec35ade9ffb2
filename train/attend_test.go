package train

import (
	"context"
	"errors"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/symgrad/symgrad/config"
	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/dist/launch"
	"github.com/symgrad/symgrad/internal/sim"
)

// A rank that reads its data, which a disk may keep for any time, ends a moment after a signal, and
// after another rank has failed.
func TestARankThatReadsDataEndsWithTheGroup(t *testing.T) {
	for name, c := range map[string]struct {
		end  func(signal context.CancelCauseFunc, other *dist.World) error
		want func(error) bool
	}{
		"signal": {
			func(signal context.CancelCauseFunc, _ *dist.World) error {
				signal(&interrupted{syscall.SIGTERM})
				return nil
			},
			func(err error) bool { return errors.As(err, new(*interrupted)) },
		},
		"another rank": {
			func(_ context.CancelCauseFunc, other *dist.World) error {
				return other.Abort(errors.New("no such disk"))
			},
			func(err error) bool {
				return errors.Is(err, dist.ErrAborted) && strings.Contains(err.Error(), "rank 0 of 2: ") && strings.Contains(err.Error(), "no such disk")
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			o, err := program.parse(smallRun(t.TempDir(), "log.progress=none"))
			if err != nil {
				t.Fatal(err)
			}
			synctest.Test(t, func(t *testing.T) {
				disk := make(chan struct{})
				o := o
				o.program.Open = func(*config.Config) (Problem, error) {
					<-disk
					return nil, errors.New("read too late")
				}
				j := &job{options: o, env: launch.Env{Size: 2, LocalSize: 2}}
				worlds, err := sim.New(2, sim.Config{})
				if err != nil {
					t.Fatal(err)
				}
				ctx, signal := context.WithCancelCause(t.Context())
				defer signal(nil)
				time.AfterFunc(time.Hour, func() {
					if err := c.end(signal, worlds[1]); err != nil {
						t.Error(err)
					}
				})
				began := time.Now()
				err, left := j.attended(ctx, worlds[0])
				if took := time.Since(began) - time.Hour; !left || !c.want(err) || took > 2*time.Second {
					t.Errorf("after %v: %v, left %v", took, err, left)
				}
				close(disk)
				synctest.Wait()
				for _, w := range worlds {
					_ = w.Close() // whatever an aborted one says
				}
			})
		})
	}
}

// A rank's own error has priority, if it arrives in time.
func TestARankThatEndsByItselfIsNotLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		worlds, err := sim.New(1, sim.Config{})
		if err != nil {
			t.Fatal(err)
		}
		disk := errors.New("no such disk")
		j := &job{options: options{program: Program{Open: func(*config.Config) (Problem, error) { return nil, disk }}}}
		if err, left := j.attended(t.Context(), worlds[0]); left || !errors.Is(err, disk) {
			t.Errorf("%v, left %v, want its own error", err, left)
		}
		if err := worlds[0].Close(); err != nil {
			t.Error(err)
		}
	})
}
