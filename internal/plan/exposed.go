package plan

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/symgrad/symgrad/dist"
)

// Link is how long collectives take between the ranks.
type Link struct {
	Source string  `json:"source"` // "probe of shm", "given"
	Points []Point `json:"points"` // measured allreduces, by bytes; one of 0 bytes is the time of any
	GBps   float64 `json:"gbps"`   // bytes that a rank sends in a nanosecond, for large ones (bus bandwidth)
}

// Point is the time of one allreduce.
type Point struct {
	Bytes   int64   `json:"bytes"`
	Seconds float64 `json:"seconds"`
}

// LeastGBps is the slowest link: a byte a second. On one that is slower by far times would be
// infinite, which JSON cannot tell.
const LeastGBps = 1e-9

// Given is a link of so many GB/s that each rank sends with, and no latency.
//
// Errors: ErrJob for a number below LeastGBps, or an infinite one.
func Given(gbps float64) (*Link, error) {
	if !(gbps >= LeastGBps) || math.IsInf(gbps, 1) {
		return nil, fmt.Errorf("%w: a bandwidth of %v GB/s", ErrJob, gbps)
	}
	return &Link{Source: "given", GBps: gbps}, nil
}

// Probed is the link that allreduces of n ranks were measured on.
//
// Errors: ErrJob for no points, or times that are none.
func Probed(source string, n int, points []Point) (*Link, error) {
	points = slices.Clone(points)
	slices.SortFunc(points, func(a, b Point) int { return cmp.Compare(a.Bytes, b.Bytes) })
	l := &Link{Source: source, Points: points}
	for _, p := range points {
		if !(p.Seconds > 0) || p.Bytes < 0 {
			return nil, fmt.Errorf("%w: an allreduce of %d B in %v s", ErrJob, p.Bytes, p.Seconds)
		}
		l.GBps = max(l.GBps, float64(Sent(dist.KindAllReduce, p.Bytes, n))/p.Seconds/1e9)
	}
	if len(points) == 0 {
		return nil, fmt.Errorf("%w: a probe that has measured nothing", ErrJob)
	}
	return l, nil
}

// Seconds is the time of a collective on n ranks. Between measured sizes it is a straight line,
// beyond the largest the line through the last two goes on, and a reduce-scatter or all-gather
// takes as long as the allreduce in which a rank sends as much: of half the bytes.
func (l *Link) Seconds(c Collective, n int) float64 {
	if n < 2 {
		return 0
	}
	if len(l.Points) == 0 {
		return float64(c.Sent) / l.GBps / 1e9
	}
	bytes := float64(c.Sent) * float64(n) / float64(2*(n-1)) // of an allreduce that sends as much
	first := l.Points[0]
	if bytes <= float64(first.Bytes) || len(l.Points) == 1 {
		if len(l.Points) == 1 && bytes > float64(first.Bytes) {
			return first.Seconds * bytes / float64(max(first.Bytes, 1))
		}
		return first.Seconds
	}
	k := 1
	for k < len(l.Points)-1 && bytes > float64(l.Points[k].Bytes) {
		k++
	}
	a, b := l.Points[k-1], l.Points[k]
	slope := (b.Seconds - a.Seconds) / float64(max(b.Bytes-a.Bytes, 1))
	return max(a.Seconds+slope*(bytes-float64(a.Bytes)), 0)
}

// Exposure is the predicted time of a step's communication, and how much of it the step waits for.
type Exposure struct {
	Communication float64  `json:"communication_s"` // all of it, one after the other
	Least         float64  `json:"least_s"`         // that is waited for, however long the backward pass takes
	Exposed       *float64 `json:"exposed_s"`       // that is waited for; null where the time of the backward pass is not known
	Backward      float64  `json:"backward_s,omitempty"`
}

// backwardShare is the backward pass's part of forward and backward: a product in the forward pass
// is two in the backward one, with the same number of multiplications each.
//
// Source: Kaplan et al., Scaling Laws for Neural Language Models, 2020, section 2.1.
const backwardShare = 2.0 / 3

// Predict fills in times. compute is the time that a step takes without communication, as measured;
// 0 where it is not known.
func (p *Plan) Predict(l *Link, compute time.Duration, overlap bool) {
	p.Link = l
	for i := range p.Stages {
		s := &p.Stages[i]
		e := &Exposure{}
		for _, c := range s.Step {
			e.Communication += l.Seconds(c, p.Ranks)
		}
		if compute > 0 {
			e.Backward = backwardShare * compute.Seconds()
			exposed := round(s.exposed(l, p.Ranks, e.Backward, overlap))
			e.Exposed = &exposed
		}
		e.Least = e.Communication
		if overlap {
			e.Least = s.leastExposed(l, p.Ranks)
		}
		e.Communication, e.Least, e.Backward = round(e.Communication), round(e.Least), round(e.Backward)
		s.Time = e
	}
}

// round rounds x to picoseconds: smaller parts are noise.
func round(x float64) float64 { return math.Round(x*1e12) / 1e12 }

// exposed returns the time of the communication of a step after the end of the backward pass. A
// bucket is ready when the share of its gradients has arrived, evenly by their elements;
// collectives run one after the other. Those that do not wait for gradients run during the
// computation, except the first gather of weights.
func (s *Stage) exposed(l *Link, n int, backward float64, overlap bool) float64 {
	free, before := 0.0, 0.0
	for i, c := range s.Step {
		t, ready := l.Seconds(c, n), backward
		switch k := s.phases[i]; {
		case k == first:
			before += t
			continue
		case k == early && overlap:
			continue
		case k >= 0 && overlap:
			ready *= s.Buckets[k].Ready
		}
		free = max(free, ready) + t
	}
	return before + max(free-backward, 0)
}

// leastExposed is exposed for a backward pass that hides all communication except the last bucket
// and the collectives after the update.
func (s *Stage) leastExposed(l *Link, n int) float64 {
	sum := 0.0
	for i, c := range s.Step {
		if k := s.phases[i]; k == late || k == first || k >= 0 && int(k) == len(s.Buckets)-1 {
			sum += l.Seconds(c, n)
		}
	}
	return sum
}
