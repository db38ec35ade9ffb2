package ddp_test

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	gtensor "gorgonia.org/tensor"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/dist/ddp"
	"github.com/symgrad/symgrad/dist/ddp/compress"
	"github.com/symgrad/symgrad/optim"
)

// operations is the names of the operations of one step of l, in their order.
func operations(l *learner) ([]string, error) {
	before := l.w.Recorder().Records()
	from := before[len(before)-1].Seq
	if err := errors.Join(l.run(indices(0, 3), 3), l.step()); err != nil {
		return nil, err
	}
	var names []string
	for _, r := range l.w.Recorder().Records() {
		if r.Seq > from {
			names = append(names, r.Name)
		}
	}
	return names, nil
}

// Two DDPs of one world take turns: their operations have other prefixes, by which each finds its
// own.
func TestDDPsOfAWorldAreToldApart(t *testing.T) {
	for stage := range 4 {
		t.Run(fmt.Sprint("stage ", stage), func(t *testing.T) {
			onRanks(t, 2, func(w *dist.World) error {
				cfg, sgd := ddp.Config{Stage: stage, BucketMB: 1.0 / 1024}, optim.Config{Name: optim.SGD, LearningRate: 0.1, ClipNorm: 1}
				var all [3]*learner
				var names [3][]string
				for i := range all {
					var err error
					if all[i], err = newLearner(w, wider, gtensor.Float32, 3, cfg, sgd); err != nil {
						return err
					}
				}
				for range 2 {
					for i, l := range all {
						var err error
						if names[i], err = operations(l); err != nil {
							return err
						}
					}
				}
				if !slices.Contains(names[0], "bucket 0") || !slices.Contains(names[0], "ddp weight") {
					return fmt.Errorf("the first DDP's operations are %q", names[0])
				}
				for i, other := range names[1:] {
					for k := range names[0] {
						if want := fmt.Sprintf("ddp %d %s", i+2, strings.TrimPrefix(names[0][k], "ddp ")); other[k] != want {
							return fmt.Errorf("operation %d is %q, want %q", k, other[k], want)
						}
					}
				}
				return errors.Join(all[0].close(), all[1].close(), all[2].close())
			})
		})
	}
}

// The timelines of two DDPs that take turns within a step have only their own operations: buckets
// of one are larger.
func TestTimelinesAreOfOneDDP(t *testing.T) {
	for stage := range 4 {
		onRanks(t, 2, func(w *dist.World) error {
			var all [3]*learner
			for i, mb := range []float64{1.0 / 1024, 0, 4.0 / 1024} {
				var err error
				if all[i], err = newLearner(w, wider, gtensor.Float32, 3, ddp.Config{Stage: stage, BucketMB: mb}, optim.Config{Name: optim.SGD}); err != nil {
					return err
				}
			}
			for _, l := range all {
				if err := l.run(indices(0, 3), 3); err != nil {
					return err
				}
			}
			for _, l := range slices.Backward(all[:]) {
				if err := l.step(); err != nil {
					return err
				}
			}
			for i, l := range all {
				line, plan := l.d.Timeline(), l.d.Plan()
				gathers := 0
				if stage == 1 || stage == 2 {
					gathers = len(plan.Buckets)
				}
				if len(line.Buckets) != len(plan.Buckets) || len(line.Gathers) != gathers {
					return fmt.Errorf("DDP %d has %d buckets, %d reduced and %d gathered", i+1, len(plan.Buckets), len(line.Buckets), len(line.Gathers))
				}
				for k, b := range line.Buckets {
					if b.Started == 0 || b.Ended < b.Started {
						return fmt.Errorf("DDP %d: %+v", i+1, b)
					}
					if gathers > 0 && (line.Gathers[k].Bucket != k || line.Gathers[k].Bytes != b.Bytes) {
						return fmt.Errorf("DDP %d: bucket %+v is gathered %+v", i+1, b, line.Gathers[k])
					}
				}
			}
			return errors.Join(all[0].close(), all[1].close(), all[2].close())
		})
	}
}

// TestTimelinesHaveAllOperationsOfABucket has hooks and virtual ranks that make several of it, and
// runs inside NoSync that reduce as well and are of no step yet.
func TestTimelinesHaveAllOperationsOfABucket(t *testing.T) {
	for _, cfg := range []ddp.Config{{Hook: compress.PowerSGD{Rank: 2}}, {VirtualRanks: 2}, {Stage: 2, BucketMB: 1.0 / 1024}} {
		onRanks(t, 2, func(w *dist.World) error {
			l, err := newLearner(w, wider, gtensor.Float32, 3, cfg, optim.Config{Name: optim.SGD})
			if err != nil {
				return err
			}
			if err := l.run(indices(0, 3), 3); err != nil {
				return err
			}
			step := w.Recorder().Records()
			if cfg.Stage == 2 {
				if err := l.d.NoSync(func() error { return l.run(indices(0, 3), 3) }); err != nil {
					return err
				}
			}
			for i, b := range l.d.Timeline().Buckets {
				of := slices.DeleteFunc(w.Recorder().Records(), func(r dist.Record) bool { return r.Name != fmt.Sprint("bucket ", i) })
				last := slices.DeleteFunc(slices.Clone(of), func(r dist.Record) bool { return r.Seq > step[len(step)-1].Seq })
				if got, want := endingAt(of, b.Ended), last[len(last)-1].Seq; got != want {
					return fmt.Errorf("bucket %d ends with operation %d of %v, want %d", i, got, of, want)
				}
			}
			return l.close()
		})
	}
}

// endingAt is the number of the operation that ended then: each reading of the recorder measures
// its clock anew, and has times that are some nanoseconds off those of another.
func endingAt(all []dist.Record, at time.Duration) uint64 {
	return slices.MinFunc(all, func(a, b dist.Record) int {
		return cmp.Compare(max(a.Ended-int64(at), int64(at)-a.Ended), max(b.Ended-int64(at), int64(at)-b.Ended))
	}).Seq
}
