package conformance

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/internal/sim"
	"github.com/symgrad/symgrad/symmetric"
)

// skewed is a heap that takes no notice of alignments.
type skewed struct{ symmetric.Heap }

func (h skewed) Aligned(alignment, bytes int64) (symmetric.Region, error) {
	if symmetric.CheckAlignment(alignment, symmetric.MaxAlignment) == nil {
		alignment = symmetric.Alignment
	}
	return h.Heap.Aligned(alignment, bytes)
}

func TestSuiteFindsBugsOfHeaps(t *testing.T) {
	for _, tt := range []struct {
		name string
		heap func(symmetric.Heap) symmetric.Heap
		want string // in the error
	}{
		{"no alignment", func(h symmetric.Heap) symmetric.Heap { return skewed{h} }, "is no multiple of 4096"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			wrap := func(end dist.Transport) dist.Transport {
				return &crooked{Transport: end, heap: func(h symmetric.Heap, err error) (symmetric.Heap, error) {
					if err != nil {
						return nil, err
					}
					return tt.heap(h), nil
				}}
			}
			err := drive(t, 2, sim.Config{StepTimeout: time.Minute}, wrap, func(w *dist.World) error {
				for _, p := range parts {
					if p.name == "Heap" {
						return runPart(w, Options{Large: 101}, p, nil)
					}
				}
				return errors.New("no such part")
			})
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v, want one that says %q", err, tt.want)
			}
		})
	}
}
