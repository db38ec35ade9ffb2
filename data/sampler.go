// Package data reads samples of files, tokens and images, and prepares batches ahead of each step.
// A Sampler divides the samples of a Dataset among the ranks of a job, and a Loader reads them with
// goroutines. TokenWriter writes files of tokens.
package data

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"math/bits"
	"math/rand/v2"

	"github.com/symgrad/symgrad/dist"
)

// SamplerConfig is the data set and the rank of a Sampler.
type SamplerConfig struct {
	Samples     int   // in the data set
	GlobalBatch int   // samples of a step, all ranks together
	Rank        int   // of the caller
	Size        int   // number of ranks; 0 means 1
	Seed        int64 // seed of the order
	Shuffle     bool  // a new order each epoch; otherwise 0, 1, 2, ...
	DropLast    bool  // leave out the last batch of an epoch when it is shorter
}

// Validate checks c.
//
// Errors: dist.ErrInvalid naming the field.
func (c SamplerConfig) Validate() error {
	size := max(c.Size, 1)
	switch {
	case c.Samples < 1:
		return fmt.Errorf("sampler: %w: %d samples, want at least 1", dist.ErrInvalid, c.Samples)
	case c.GlobalBatch < 1:
		return fmt.Errorf("sampler: %w: a global batch of %d, want at least 1", dist.ErrInvalid, c.GlobalBatch)
	case c.Size < 0:
		return fmt.Errorf("sampler: %w: %d ranks", dist.ErrInvalid, c.Size)
	case c.Rank < 0 || c.Rank >= size:
		return fmt.Errorf("sampler: %w: rank %d of %d", dist.ErrInvalid, c.Rank, size)
	case c.DropLast && c.GlobalBatch > c.Samples:
		return fmt.Errorf("sampler: %w: DropLast leaves nothing of %d samples in batches of %d", dist.ErrInvalid, c.Samples, c.GlobalBatch)
	}
	return nil
}

// Sampler distributes the samples of a data set to the ranks of a job, epoch after epoch. In every
// epoch it orders them by Seed and epoch alone, cuts the order into global batches,
//
//	batch k = order[k*GlobalBatch : (k+1)*GlobalBatch]      (the last may be shorter)
//
// and cuts each batch, of n samples, into one piece for each rank. Their lengths differ by at most
// 1:
//
//	piece r = batch[n*r/Size : n*(r+1)/Size]
//
// So batches do not depend on the number of ranks, and in an epoch each sample comes exactly once,
// on one rank (without DropLast). Ranks need no communication. If the graph draws random numbers,
// pass the number of a piece's first sample, n*r/Size, to a machine's SetFirstSample.
//
// Pieces of a batch differ in length, and an epoch's last batch may be shorter. So a rank's piece
// may have any number of samples, or none. RunPart of dist/ddp trains on it in one call, under both
// machines. The alternative is SetWeight(Batch.Weight) and Machine.Let, which unlike gorgonia.Let
// changes the number of rows of a graph; a tape machine has no such call. DropLast omits short
// batches, but pieces still differ in length.
//
// Not for concurrent use.
type Sampler struct {
	cfg   SamplerConfig
	order []int // of epoch at.Epoch; nil until made
	at    Cursor
}

// Batch is one rank's part of a global batch.
type Batch struct {
	Indices []int   // this rank's samples; may be empty. Valid until the next epoch begins
	Weight  float64 // len(Indices), for SetWeight of dist/ddp
	Global  int     // samples of the batch, over all ranks
	Epoch   int     // from 0
	Step    int     // of the epoch, from 0
}

// Cursor is the position of a Sampler: batch Step of epoch Epoch is next. It includes the settings
// that determine the order, so that a Sampler with another order rejects it. It can be marshalled,
// and is valid for any number of ranks.
type Cursor struct {
	Epoch       int   `json:"epoch"`
	Step        int   `json:"step"`
	Samples     int   `json:"samples"`
	GlobalBatch int   `json:"global_batch"`
	Seed        int64 `json:"seed"`
	Shuffle     bool  `json:"shuffle"`
	DropLast    bool  `json:"drop_last"`
}

// NewSampler returns a Sampler at the first batch of epoch 0.
//
// Errors: dist.ErrInvalid.
func NewSampler(cfg SamplerConfig) (*Sampler, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	cfg.Size = max(cfg.Size, 1)
	return &Sampler{cfg: cfg, at: Cursor{
		Samples: cfg.Samples, GlobalBatch: cfg.GlobalBatch, Seed: cfg.Seed, Shuffle: cfg.Shuffle, DropLast: cfg.DropLast,
	}}, nil
}

// Steps returns the number of batches in an epoch.
func (s *Sampler) Steps() int {
	if s.cfg.DropLast {
		return s.cfg.Samples / s.cfg.GlobalBatch
	}
	return (s.cfg.Samples-1)/s.cfg.GlobalBatch + 1
}

// Next returns this rank's part of the next batch. It never ends: the next epoch follows the last
// batch of an epoch.
func (s *Sampler) Next() Batch {
	if s.order == nil {
		s.order = order(s.order, s.cfg, s.at.Epoch)
	}
	lo := s.at.Step * s.cfg.GlobalBatch
	n := min(s.cfg.GlobalBatch, s.cfg.Samples-lo)
	from, to := lo+split(n, s.cfg.Rank, s.cfg.Size), lo+split(n, s.cfg.Rank+1, s.cfg.Size)
	b := Batch{Indices: s.order[from:to:to], Weight: float64(to - from), Global: n, Epoch: s.at.Epoch, Step: s.at.Step}
	if s.at.Step++; s.at.Step == s.Steps() {
		s.at.Epoch, s.at.Step, s.order = s.at.Epoch+1, 0, nil
	}
	return b
}

// split returns the start of rank's piece when n things are cut into size pieces.
func split(n, rank, size int) int {
	hi, lo := bits.Mul64(uint64(n), uint64(rank)) // n*rank/size without overflow
	q, _ := bits.Div64(hi, lo, uint64(size))
	return int(q)
}

// Cursor returns the position of the Sampler, for checkpoints.
func (s *Sampler) Cursor() Cursor { return s.at }

// Seek makes the batch at c the next.
//
// Errors: dist.ErrInvalid when c has another order (Samples, GlobalBatch, Seed, Shuffle or
// DropLast), naming the first difference, or is outside an epoch.
func (s *Sampler) Seek(c Cursor) error {
	for _, f := range [...]struct {
		name      string
		have, got any
	}{
		{"Samples", s.at.Samples, c.Samples},
		{"GlobalBatch", s.at.GlobalBatch, c.GlobalBatch},
		{"Seed", s.at.Seed, c.Seed},
		{"Shuffle", s.at.Shuffle, c.Shuffle},
		{"DropLast", s.at.DropLast, c.DropLast},
	} {
		if f.have != f.got {
			return fmt.Errorf("sampler seek: %w: the cursor has %s %v, the sampler %v", dist.ErrInvalid, f.name, f.got, f.have)
		}
	}
	if c.Epoch < 0 || c.Step < 0 || c.Step >= s.Steps() {
		return fmt.Errorf("sampler seek: %w: step %d of epoch %d; an epoch has %d steps", dist.ErrInvalid, c.Step, c.Epoch, s.Steps())
	}
	if c.Epoch != s.at.Epoch {
		s.order = nil
	}
	s.at = c
	return nil
}

// order returns the order of the samples in an epoch. Checkpoints rely on it, so it never changes.
// It is a Fisher-Yates shuffle (Knuth, The Art of Computer Programming 2, algorithm 3.4.2 P) of 0,
// 1, 2, ... Its numbers are drawn without bias (Lemire, "Fast Random Integer Generation in an
// Interval", 2019) from ChaCha8 (c2sp.org/chacha8rand) with the key SHA-256("symgrad sampler 1" ++
// seed ++ epoch), the integers as 8 bytes, little-endian.
func order(into []int, cfg SamplerConfig, epoch int) []int {
	into = into[:0]
	for i := range cfg.Samples {
		into = append(into, i)
	}
	if !cfg.Shuffle {
		return into
	}
	text := []byte("symgrad sampler 1")
	text = binary.LittleEndian.AppendUint64(text, uint64(cfg.Seed))
	text = binary.LittleEndian.AppendUint64(text, uint64(epoch))
	source := rand.NewChaCha8(sha256.Sum256(text))
	for i := len(into) - 1; i > 0; i-- {
		j := below64(source, uint64(i)+1)
		into[i], into[j] = into[j], into[i]
	}
	return into
}

// below64 returns a uniformly distributed number from 0 to n-1.
func below64(source *rand.ChaCha8, n uint64) uint64 {
	hi, lo := bits.Mul64(source.Uint64(), n)
	if lo < n {
		for floor := -n % n; lo < floor; {
			hi, lo = bits.Mul64(source.Uint64(), n)
		}
	}
	return hi
}
