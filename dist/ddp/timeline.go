package ddp

import (
	"time"
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

// Names of operations: prefixes of buckets and of gathers of weights, followed by the bucket's
// number, and the exchange of the ranks' weights.
const (
	bucketPrefix  = "bucket "
	weightsPrefix = "weights "
	weightName    = "ddp weight"
)
