package conformance

import (
	"testing"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/internal/shm"
)

func TestZZShm(t *testing.T) {
	for _, m := range []shm.Memory{shm.Mapped} {
		Run(t, func(t *testing.T, n int, opt LaunchOptions, body func(w *dist.World) error) {
			if opt.Die != nil {
				t.Skip("cannot kill goroutines")
			}
			ts, err := shm.Local(n, m, shm.Config{ChunkBytes: 1 << 10, StepTimeout: opt.StepTimeout})
			if err != nil {
				t.Fatal(err)
			}
			ws := make([]*dist.World, n)
			for r := range ws {
				if ws[r], err = dist.NewWorld(ts[r], dist.LocalInfo{}, 64, nil); err != nil {
					t.Fatal(err)
				}
			}
			Drive(t, ws, body)
		})
	}
}
