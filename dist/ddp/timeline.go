package ddp

import (
	"strconv"
	"strings"
	"time"

	"github.com/symgrad/symgrad/dist"
)

// Timeline is the times of the last step that communicated, since the epoch of the world's
// recorder.
type Timeline struct {
	Step          int           // counted from 1
	BackwardStart time.Duration // the forward pass has ended
	BackwardEnd   time.Duration // the last gradient has come
	End           time.Duration // the last gradient has been reduced, if the program has waited for it; with Stage 1 and 2, the solver has all weights
	Exposed       time.Duration // time that the program waited for buckets, and in a sharded solver for other ranks
	Period        time.Duration // from the end of the previous step to the end of this one; from BackwardStart in the first step
	Buckets       []BucketTimes // in the order in which they were started
	Gathers       []BucketTimes // with Stage 1 and 2: of the weights, after the solver's update; Ready is when it was queued
}

// BucketTimes is the times of one bucket. Started and Ended are 0 before they happen, or when the
// recorder's ring has lost the operation.
type BucketTimes struct {
	Bucket  int
	Bytes   int64
	Ready   time.Duration // all its gradients were computed, and earlier buckets were queued
	Started time.Duration // the reduction, or the first operation of several, began to run
	Ended   time.Duration // the last of them ended
}

// clock holds the times of the last step.
type clock struct {
	begun, joined, ended, exposed time.Duration
	before                        time.Duration // end of the previous step; 0 in the first
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

// Timeline returns the times of the last step that communicated. Do not call it while the graph
// runs.
func (d *DDP) Timeline() Timeline {
	c := &d.clock
	t := Timeline{Step: d.step, BackwardStart: c.begun, BackwardEnd: c.joined, End: c.ended, Exposed: c.exposed, Period: c.period()}
	for i, b := range d.buckets {
		if b.started {
			t.Buckets = append(t.Buckets, BucketTimes{Bucket: i, Bytes: d.wireBytes(b), Ready: b.ready})
		}
	}
	for _, r := range d.team.records() {
		switch {
		case r.Queued < int64(c.begun):
		case strings.HasPrefix(r.Name, d.team.prefix+bucketPrefix):
			if c.ended > c.begun && r.Queued > int64(c.ended) {
				continue // of a run inside NoSync since
			}
			for i := range t.Buckets {
				if q := &t.Buckets[i]; r.Name == d.buckets[q.Bucket].name {
					if q.Started == 0 {
						q.Started = time.Duration(r.Started)
					}
					q.Ended = time.Duration(r.Ended) // of several, the last
					break
				}
			}
		case d.solver != nil && len(t.Gathers) < len(d.buckets) && r.Signature.Kind == dist.KindAllGather && strings.HasPrefix(r.Name, d.team.prefix+weightsPrefix):
			if i, err := strconv.Atoi(r.Name[len(d.team.prefix+weightsPrefix):]); err == nil && !d.gathers() {
				t.Gathers = append(t.Gathers, BucketTimes{
					Bucket: i, Bytes: r.Bytes, Ready: time.Duration(r.Queued), Started: time.Duration(r.Started), Ended: time.Duration(r.Ended),
				})
			}
		}
	}
	return t
}

// Names of operations: prefixes of buckets and of gathers of weights, followed by the bucket's
// number, and the exchange of the ranks' weights.
const (
	bucketPrefix  = "bucket "
	weightsPrefix = "weights "
	weightName    = "ddp weight"
)

// ExposedComm returns the exposed communication of the last step, and its fraction of the time from
// the previous step's end to its own end.
func (d *DDP) ExposedComm() (time.Duration, float64) {
	period := d.clock.period()
	if period <= 0 {
		return d.clock.exposed, 0
	}
	return d.clock.exposed, float64(d.clock.exposed) / float64(period)
}
