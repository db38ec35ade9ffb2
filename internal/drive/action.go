package drive

import "github.com/symgrad/symgrad/tensor"

// Verb names the kind of an Action.
type Verb uint8

// The verbs. A rank's part of a bucket is the part that it owns with sharding, and else all of it.
// The share is this rank's factor of its gradients: see Share.
const (
	// Scale multiplies this rank's bucket by the share. Ranks exchange nothing.
	Scale Verb = iota
	// Encode makes a message of the share times the bucket.
	Encode
	// Sum sums over the ranks a message or, without messages, the share times the bucket, in place.
	// Only this rank's part holds the sum then.
	Sum
	// Decode makes this rank's part of the bucket of the messages, times By. Without messages it
	// multiplies the part by By.
	Decode
	// Pack puts the bucket of the step's last run next to those of the runs before it, in one slice
	// for each rank.
	Pack
	// Trade gives each rank its slices of all virtual ranks.
	Trade
	// Add adds up these slices, one virtual rank after the other, each times its share. A machine
	// multiplies in Pack, which gives the same bits.
	Add
	// Gather copies all ranks' sums to the bucket.
	Gather
)

// String returns the name for errors.
func (v Verb) String() string {
	return [...]string{"scale", "encode", "sum", "decode", "pack", "trade", "add", "gather"}[v]
}

// NoMessage is the Message of an Action on the bucket itself.
const NoMessage = -1

// Action is one step of the exchange of a full bucket. The host runs a list of them in stream order
// and a machine makes steps of them, with the same bits: products are rounded before they are
// added, and sums are in the order of the ranks.
type Action struct {
	Do      Verb
	Message int     // of Encode and Sum: the number of the round; NoMessage for the bucket
	By      float64 // of Decode
}

// Share is the formula of a rank's factor of its gradients, from own, the multiplier of what its
// slots hold, and the sum of all ranks' weights:
//
//	own * Times                 if it does not divide
//	own * Times / sum / Over    else; 0 if the sum is 0
type Share struct {
	Times, Over float64
	Divides     bool
	Alone       bool    // the sum is this rank's weight: no rank needs the others' weights
	Part        float64 // factor of a micro-batch that is summed by itself, in a run inside NoSync
}

// Of returns the factor.
func (s Share) Of(own, sum float64) float64 {
	switch {
	case !s.Divides:
		return own * s.Times
	case !(sum > 0):
		return 0
	}
	return own * s.Times / sum / s.Over
}

// Exchanged reports whether the factor needs the sum of all ranks' weights.
func (s Share) Exchanged() bool { return s.Divides && !s.Alone }

// Recipe is the exchange of full buckets as data.
type Recipe struct {
	Share   Share      // formula of the factors
	Actions [][]Action // of each bucket, in Plan's order
	Hosted  bool       // a hook needs memory of the host: Exchange.Hook replaces Actions
}

// HookCall is the exchange of one bucket by a hook that needs memory of the host.
type HookCall struct {
	Gradients tensor.Buffer // a copy of the bucket on the host, which gets the result: this rank's part of it
	Share     float64       // factor of this rank's gradients
	Sum       float64       // of the ranks' weights, if the share needs it
}

// Feedback is the memory of error feedback. The zero value means none.
type Feedback struct {
	Residuals []tensor.Buffer // f32, by bucket: rounding errors of this rank's last messages
	Finite    tensor.Buffer   // f64, by bucket: 0 if this rank's part of the last gradient is finite, else NaN
	Doubt     tensor.Buffer   // f64: their sum over the buckets, and over the ranks if they have parts
}

// Virtual is the memory of virtual ranks. With Runs 0 there are none.
type Virtual struct {
	Runs   int              // of each real rank in a step
	Own    tensor.Buffer    // f64: the weights of this rank's runs
	All    tensor.Buffer    // f64: the weights of all virtual ranks
	Shares [2]tensor.Buffer // of all virtual ranks, in f32 and f64
	Send   []tensor.Buffer  // by bucket: [rank][run][slice]
}

// Slice returns the elements of a bucket that each of so many ranks adds up; the last one may have
// fewer.
func Slice(elements, ranks int) int { return (elements + ranks - 1) / ranks }
