package ddp

import (
	"strconv"
	"strings"
	"time"

	"github.com/symgrad/symgrad/dist"
)

// Timeline has the times of events in the last step that communicated, since the epoch of the
// world's recorder.
type Timeline struct {
	Step          int           // counted from 1
	BackwardStart time.Duration // the forward pass has ended
	BackwardEnd   time.Duration // the last gradient has come
	End           time.Duration // the last gradient has been reduced, if the program has waited for it; with Stage 1 and 2, the solver has all weights
	Exposed       time.Duration // how long the program stood still to wait for buckets, and in a sharded solver for other ranks
	Period        time.Duration // from the end of the step before to the end of this one; from BackwardStart in the first step
	Buckets       []BucketTimes // in the order in which they were started
	Gathers       []BucketTimes // with Stage 1 and 2: of the weights, after the solver's update; Ready is when it was queued
}

// BucketTimes has the times of one bucket. Started and Ended are 0 before these events, or when the
// recorder's ring no longer has the operation.
type BucketTimes struct {
	Bucket  int
	Bytes   int64
	Ready   time.Duration // all its gradients were there, and the buckets before it had been queued
	Started time.Duration // the reduction, or the first operation of several, began to run
	Ended   time.Duration // the last of them
}

// clock keeps the times of the last step.
type clock struct {
	begun, joined, ended, exposed time.Duration
	before                        time.Duration // end of the step before; 0 in the first
}

func (c *clock) begin(now time.Duration) {
	*c = clock{begun: now, before: c.ended}
}

func (c *clock) join(now time.Duration)      { c.joined = now }
func (c *clock) end(now time.Duration)       { c.ended = now }
func (c *clock) block(blocked time.Duration) { c.exposed += blocked }

func (c *clock) period() time.Duration {
	if c.before == 0 {
		return c.ended - c.begun
	}
	return c.ended - c.before
}

func (d *DDP) now() time.Duration { return time.Since(d.epoch) }

// Timeline is the times of the last step that communicated. It must not be called while the graph
// runs.
func (d *DDP) Timeline() Timeline {
	c := &d.clock
	t := Timeline{Step: d.step, BackwardStart: c.begun, BackwardEnd: c.joined, End: c.ended, Exposed: c.exposed, Period: c.period()}
	for i, b := range d.buckets {
		if b.started {
			t.Buckets = append(t.Buckets, BucketTimes{Bucket: i, Bytes: d.wireBytes(b), Ready: b.ready})
		}
	}
	for _, r := range d.world.Recorder().Records() {
		switch {
		case r.Queued < int64(c.begun):
		case strings.HasPrefix(r.Name, d.prefix+bucketPrefix):
			if c.ended > c.begun && r.Queued > int64(c.ended) {
				continue // of a run inside NoSync since
			}
			for i := range t.Buckets {
				if q := &t.Buckets[i]; r.Name == d.buckets[q.Bucket].name {
					if q.Started == 0 {
						q.Started = time.Duration(r.Started)
					}
					q.Ended = time.Duration(r.Ended) // of several, that of the last
					break
				}
			}
		case d.solver != nil && len(t.Gathers) < len(d.buckets) && r.Signature.Kind == dist.KindAllGather && strings.HasPrefix(r.Name, d.prefix+weightsPrefix):
			if i, err := strconv.Atoi(r.Name[len(d.prefix+weightsPrefix):]); err == nil && !d.gathers() {
				t.Gathers = append(t.Gathers, BucketTimes{
					Bucket: i, Bytes: r.Bytes, Ready: time.Duration(r.Queued), Started: time.Duration(r.Started), Ended: time.Duration(r.Ended),
				})
			}
		}
	}
	return t
}

// Names of the operations of buckets and of gathers of weights, before the bucket's number, and of
// the ranks' weights.
const (
	bucketPrefix  = "bucket "
	weightsPrefix = "weights "
	weightName    = "ddp weight"
)

// named is a view of the world whose operations have a name that tells this DDP from others of the
// world.
func (d *DDP) named(name string) *dist.Group {
	if d.prefix != "" {
		name = d.prefix + strings.TrimPrefix(name, "ddp ")
	}
	return d.world.Named(name)
}

// ExposedComm is how long the last step stood still to wait for communication, and which part that
// is of the time from the end of the step before to its own end.
func (d *DDP) ExposedComm() (time.Duration, float64) {
	period := d.clock.period()
	if period <= 0 {
		return d.clock.exposed, 0
	}
	return d.clock.exposed, float64(d.clock.exposed) / float64(period)
}
