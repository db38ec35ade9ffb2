package ddp

import (
	"fmt"
	"log/slog"
	"math"

	"github.com/symgrad/symgrad/dist"
)

// Config is the settings of Attach. The zero value is the default. BucketMB, FirstBucketMB and NoOverlap must be the same
// on all ranks.
type Config struct {
	BucketMB      float64      // bound of a bucket in MiB (1 MiB = 2^20 bytes), fractions allowed; 0 means 25
	FirstBucketMB float64      // bound of the first bucket of each dtype; 0 means 1, or BucketMB if that is less
	NoOverlap     bool         // start no bucket before the backward pass has ended
	Log           *slog.Logger // rank 0 reports unused parameters here; nil means slog.Default()
}

// The defaults are those of PyTorch: a large bucket uses the bandwidth, a small first one starts early.
const (
	defaultBucketMB      = 25
	defaultFirstBucketMB = 1
	minBucketMB          = 1.0 / 1024
)

// Validate checks c.
//
// Errors: dist.ErrInvalid for a bound that is neither 0 nor at least 1 KiB and finite.
func (c Config) Validate() error {
	for _, b := range [...]struct {
		name string
		mb   float64
	}{{"BucketMB", c.BucketMB}, {"FirstBucketMB", c.FirstBucketMB}} {
		if b.mb != 0 && (!(b.mb >= minBucketMB) || b.mb > math.MaxInt32) {
			return fmt.Errorf("ddp config: %w: %s is %v, want 0 or at least %v (1 KiB)", dist.ErrInvalid, b.name, b.mb, minBucketMB)
		}
	}
	return nil
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

// bucketBytes is the bounds of the first and the later buckets of a dtype.
func (c Config) bucketBytes() (first, later int64) {
	return int64(c.FirstBucketMB * (1 << 20)), int64(c.BucketMB * (1 << 20))
}
