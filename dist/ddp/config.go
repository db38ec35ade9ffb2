package ddp

import (
	"fmt"
	"log/slog"
	"math"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/dist/ddp/compress"
	"github.com/symgrad/symgrad/tensor"
)

// Config holds the settings of Attach. The zero value is the default. All but Log, Replicas and the
// Factor of PreMulSum must be equal on all ranks.
type Config struct {
	BucketMB      float64 // largest bucket in MiB (1 MiB = 2^20 bytes), fractions allowed; 0 means 25
	FirstBucketMB float64 // the same for the first bucket of each dtype; 0 means 1, or BucketMB if that is less
	NoOverlap     bool    // start no bucket before the backward pass has ended

	Stage         int  // 0 shards nothing, 1 the solver's state, 2 gradients too, 3 parameters too
	OverlapGather bool // on GPUs, with Stage 1 and 2: a run gathers the weights that the previous run updated

	// Replicas is the group of the ranks that own the same shards, as a column of Split2D if Attach
	// gets a row. Gradients are summed over the row, whose ranks shard, and then over the column,
	// whose ranks replicate (HSDP of PyTorch). nil means that the group of Attach is all ranks.
	Replicas *dist.Group

	WireDType     tensor.DType  // of gradients between ranks: BF16 or F16; 0 and F32 mean the gradient's dtype
	ErrorFeedback bool          // add the rounding errors of WireDType to the next step's gradient
	Hook          compress.Hook // another compression of buckets, such as PowerSGD; nil means none

	Average Average // how ranks' gradients are combined; 0 means Mean
	Factor  float64 // of PreMulSum and PreDivide; 0 means 1, and for PreDivide a power of two near the root of the number of ranks

	VirtualRanks int // sum gradients as this many ranks would, on any number of real ranks; 0 means off
	LocalSteps   int // average weights every LocalSteps steps of the solver, and never gradients; 0 means off

	Idle bool // on GPUs: ranks may have weight 0 and non-finite gradients; costs a launch for each bucket

	Log *slog.Logger // rank 0 reports unused parameters here; nil means slog.Default()
}

// The defaults are PyTorch's: a large bucket uses the bandwidth, a small first one starts early.
const (
	defaultBucketMB      = 25
	defaultFirstBucketMB = 1
	minBucketMB          = 1.0 / 1024
)

// Validate checks c.
//
// Errors: dist.ErrInvalid for a bound that is neither 0 nor finite and at least 1 KiB, for a value
// outside its field's range, and for settings that exclude each other.
func (c Config) Validate() error {
	for _, b := range [...]struct {
		name string
		mb   float64
	}{{"BucketMB", c.BucketMB}, {"FirstBucketMB", c.FirstBucketMB}} {
		if b.mb != 0 && (!(b.mb >= minBucketMB) || b.mb > math.MaxInt32) {
			return fmt.Errorf("ddp config: %w: %s is %v, want 0 or at least %v (1 KiB)", dist.ErrInvalid, b.name, b.mb, minBucketMB)
		}
	}
	for _, check := range [...]func() string{c.wrongNumber, c.wrongWire, c.wrongAverage, c.wrongVirtual, c.wrongLocal, c.wrongReplicas} {
		if wrong := check(); wrong != "" {
			return fmt.Errorf("ddp config: %w: %s", dist.ErrInvalid, wrong)
		}
	}
	return nil
}

// wrongNumber describes the first wrong number, or returns "".
func (c Config) wrongNumber() string {
	switch {
	case c.Stage < 0 || c.Stage > 3:
		return fmt.Sprintf("Stage is %d, want 0 to 3", c.Stage)
	case c.OverlapGather && c.Stage == 0:
		return "OverlapGather needs sharded weights, and Stage is 0; use Stage 1 or 2"
	case c.VirtualRanks < 0:
		return fmt.Sprintf("VirtualRanks is %d, want at least 0", c.VirtualRanks)
	case c.LocalSteps < 0:
		return fmt.Sprintf("LocalSteps is %d, want at least 0", c.LocalSteps)
	}
	return ""
}

func (c Config) wrongWire() string {
	cast := c.WireDType == tensor.BF16 || c.WireDType == tensor.F16
	switch {
	case !cast && c.WireDType != tensor.Invalid && c.WireDType != tensor.F32:
		return fmt.Sprintf("WireDType is %v, want f32, bf16 or f16", c.WireDType)
	case c.ErrorFeedback && !cast:
		return "ErrorFeedback needs a WireDType of bf16 or f16"
	case cast && c.Hook != nil:
		return fmt.Sprintf("WireDType %v and Hook %v exclude each other: both define the messages; remove one", c.WireDType, c.Hook)
	case c.Hook != nil && c.Stage > 0 && !c.Hook.Elementwise():
		return fmt.Sprintf("Hook %v does not work with Stage %d: its messages cannot be reduce-scattered; use Stage 0, or a WireDType",
			c.Hook, c.Stage)
	}
	if v, ok := c.Hook.(interface{ Validate() error }); ok {
		if err := v.Validate(); err != nil {
			return err.Error()
		}
	}
	return ""
}

func (c Config) wrongAverage() string {
	switch {
	case c.Average > PreDivide:
		return fmt.Sprintf("Average is %v, want Mean, Sum, PreMulSum or PreDivide", c.Average)
	case c.Factor != 0 && c.Average != PreMulSum && c.Average != PreDivide:
		return fmt.Sprintf("Factor is %v, and an Average of %v does not use it; remove it", c.Factor, c.Average)
	case math.IsNaN(c.Factor) || math.IsInf(c.Factor, 0):
		return fmt.Sprintf("Factor is %v, want a finite number", c.Factor)
	case c.Average == PreDivide && c.Factor < 0:
		return fmt.Sprintf("Factor is %v, and PreDivide divides by a positive number", c.Factor)
	}
	return ""
}

func (c Config) wrongVirtual() string {
	switch {
	case c.VirtualRanks == 0:
		return ""
	case c.hook() != nil:
		return fmt.Sprintf("VirtualRanks sums exact gradients, and %v changes them", c.hook())
	case c.Average == PreMulSum || c.Average == PreDivide:
		return fmt.Sprintf("VirtualRanks works with an Average of mean or sum, not %v", c.Average)
	case c.Stage > 1:
		return fmt.Sprintf("VirtualRanks keeps whole gradients of every run, and Stage is %d; use Stage 0 or 1", c.Stage)
	}
	return ""
}

func (c Config) wrongLocal() string {
	switch {
	case c.LocalSteps == 0:
		return ""
	case c.VirtualRanks > 0, c.hook() != nil, c.Average != Mean:
		return "LocalSteps exchanges no gradients; remove VirtualRanks, WireDType, Hook and Average"
	case c.Stage > 0:
		return fmt.Sprintf("LocalSteps needs whole weights on every rank, and Stage is %d; use Stage 0", c.Stage)
	}
	return ""
}

func (c Config) wrongReplicas() string {
	switch {
	case c.Replicas == nil:
		return ""
	case c.Stage == 0:
		return "Replicas repeats shards, and Stage 0 has none; use Stage 1 to 3, or attach to the group of all ranks"
	case c.VirtualRanks > 0:
		return "VirtualRanks sums in the order of one group's ranks, and Replicas adds a second group; remove one"
	}
	return ""
}

// fits checks the settings that depend on the group.
//
// Errors: dist.ErrInvalid unless VirtualRanks is a multiple of the ranks; dist.ErrDevice if
// Replicas is on another device.
func (c Config) fits(w *dist.Group) error {
	if r := c.Replicas; r != nil && r.Device() != w.Device() {
		return fmt.Errorf("ddp config: %w: Replicas is on %v, and the group of Attach on %v; split both from one world",
			dist.ErrDevice, r.Device(), w.Device())
	}
	if n := w.Size(); c.VirtualRanks%n != 0 {
		return fmt.Errorf("ddp config: %w: VirtualRanks is %d, which %d ranks do not divide", dist.ErrInvalid, c.VirtualRanks, n)
	}
	return nil
}

// hook returns the hook of the settings, or nil.
func (c Config) hook() compress.Hook {
	if c.WireDType == tensor.BF16 || c.WireDType == tensor.F16 {
		return compress.Cast{DType: c.WireDType, ErrorFeedback: c.ErrorFeedback}
	}
	return c.Hook
}

// lines lists the settings that must agree on all ranks, one a line.
func (c Config) lines() []string {
	factor := "any"
	if c.Average != PreMulSum {
		factor = fmt.Sprint(c.Factor)
	}
	hook := "none"
	if h := c.hook(); h != nil {
		hook = h.String()
	}
	replicas := 1
	if c.Replicas != nil {
		replicas = c.Replicas.Size()
	}
	return []string{
		fmt.Sprintf("setting BucketMB: %v", c.BucketMB),
		fmt.Sprintf("setting FirstBucketMB: %v", c.FirstBucketMB),
		fmt.Sprintf("setting NoOverlap: %v", c.NoOverlap),
		fmt.Sprintf("setting Stage: %d", c.Stage),
		fmt.Sprintf("setting OverlapGather: %v", c.OverlapGather),
		fmt.Sprintf("setting Replicas: %d", replicas),
		"setting WireDType or Hook: " + hook,
		fmt.Sprintf("setting Average: %v", c.Average),
		"setting Factor: " + factor,
		fmt.Sprintf("setting VirtualRanks: %d", c.VirtualRanks),
		fmt.Sprintf("setting LocalSteps: %d", c.LocalSteps),
		fmt.Sprintf("setting Idle: %v", c.Idle),
	}
}

func (c Config) withDefaults() Config {
	if c.BucketMB == 0 {
		c.BucketMB = defaultBucketMB
	}
	if c.FirstBucketMB == 0 {
		c.FirstBucketMB = min(defaultFirstBucketMB, c.BucketMB)
	}
	if c.Log == nil {
		c.Log = slog.Default()
	}
	return c
}

// bucketBytes returns the bounds of the first and the later buckets of a dtype.
func (c Config) bucketBytes() (first, later int64) {
	return int64(c.FirstBucketMB * (1 << 20)), int64(c.BucketMB * (1 << 20))
}
