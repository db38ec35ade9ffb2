package checkpoint

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// commit finishes a save on rank 0 after its own file is written: it waits for the other ranks,
// writes the manifest, renames the folder and removes old checkpoints.
func (s *Saver) commit(staging string, j *job, own part) error {
	parts := []part{own}
	if s.o.Sharded {
		var err error
		if parts, err = s.gather(staging, own); err != nil {
			return err
		}
	}
	m, err := assemble(&j.meta, parts, s.o.Size)
	if err != nil {
		return err
	}
	text, err := m.encode()
	if err != nil {
		return err
	}
	if err := writeText(s.sys, staging, manifestName, text); err != nil {
		return err
	}
	removeParts(s.sys, staging)
	if err := publish(s.sys, s.o.Dir, filepath.Base(staging), m.Step); err != nil {
		return explain(err)
	}
	if err := prune(s.sys, s.o.Dir, m.Step, j.again, s.o.Keep); err != nil {
		return &PruneError{m.Step, explain(err)}
	}
	return nil
}

// gather waits until all ranks have written their parts.
//
// Errors: ErrTimeout with the missing ranks; the cause of Options.Context; the error of a rank
// without a file; ErrInvalid for ranks that differ.
func (s *Saver) gather(staging string, own part) ([]part, error) {
	parts := make([]part, s.o.Size)
	parts[0] = own
	var missing []int
	for rank := 1; rank < s.o.Size; rank++ {
		missing = append(missing, rank)
	}
	deadline := time.NewTimer(s.o.Timeout)
	defer deadline.Stop()
	var quiet stall
	for pause := 2 * time.Millisecond; ; pause = min(2*pause, 200*time.Millisecond) {
		still := missing[:0]
		for _, rank := range missing {
			p, err := s.readPart(staging, rank)
			switch {
			case err != nil && s.cause() != nil:
				return nil, s.cause() // the other rank's error has the same cause
			case err != nil:
				return nil, err
			case p == nil:
				still = append(still, rank)
			default:
				parts[rank] = *p
				if err := p.agrees(&own); err != nil {
					return nil, err
				}
			}
		}
		if missing = still; len(missing) == 0 {
			return parts, nil
		}
		if _, err := s.sys.ReadDir(staging); errors.Is(err, fs.ErrNotExist) {
			return nil, err // a save without a folder cannot end
		}
		if err := s.check(&quiet, staging, missing); err != nil {
			return nil, err
		}
		again := time.NewTimer(pause)
		select {
		case <-again.C:
		case <-done(s.o.Context):
			again.Stop()
			return nil, fmt.Errorf("no file of rank %s: %w", ranksText(missing), s.cause())
		case <-deadline.C:
			again.Stop()
			return nil, fmt.Errorf("%w: no file of rank %s after %v: is it alive, and does it see %s?", ErrTimeout, ranksText(missing), s.o.Timeout, s.o.Dir)
		}
	}
}

// readPart returns the part of a rank, or nil if it is not there yet.
func (s *Saver) readPart(staging string, rank int) (*part, error) {
	text, err := s.sys.ReadFile(filepath.Join(staging, partName(rank, s.o.Size)))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	p := &part{}
	if err == nil {
		err = json.Unmarshal(text, p)
	}
	if err != nil {
		return nil, fmt.Errorf("part of rank %d: %w", rank, err)
	}
	if p.Error != "" {
		return nil, fmt.Errorf("rank %d has no file: %s", rank, p.Error)
	}
	return p, nil
}

// agrees checks the values that must be equal on all ranks.
func (p *part) agrees(own *part) error {
	switch {
	case p.Step != own.Step || p.Size != own.Size:
		return fmt.Errorf("%w: rank %d saves step %d of %d ranks, rank 0 step %d of %d", ErrInvalid, p.Rank, p.Step, p.Size, own.Step, own.Size)
	case p.ConfigHash != own.ConfigHash:
		return fmt.Errorf("%w: rank %d has other settings than rank 0: hash %s, not %s", ErrInvalid, p.Rank, p.ConfigHash, own.ConfigHash)
	case p.PlanHash != own.PlanHash:
		return fmt.Errorf("%w: rank %d has another plan than rank 0: hash %s, not %s", ErrInvalid, p.Rank, p.PlanHash, own.PlanHash)
	}
	return nil
}

// assemble returns the manifest of all parts.
//
// Errors: ErrInvalid for tensors that differ between ranks, and for elements in two parts or in
// none.
func assemble(meta *Meta, parts []part, size int) (*Manifest, error) {
	m := &Manifest{
		Format: Format, Version: Version, Step: meta.Step, WorldSize: size, Stage: meta.Stage,
		Config: meta.Config, ConfigHash: meta.ConfigHash, PlanHash: meta.PlanHash, Solver: meta.Solver,
		Sampler: meta.Sampler, Scaler: meta.Scaler, Extra: meta.Extra,
	}
	at := map[string]int{}
	for _, p := range parts {
		m.Files = append(m.Files, p.File)
		m.Random = append(m.Random, p.Random)
		for _, t := range p.Tensors {
			i, ok := at[t.Name]
			if !ok {
				at[t.Name] = len(m.Tensors)
				m.Tensors = append(m.Tensors, t)
				continue
			}
			if err := m.Tensors[i].matches(&t); err != nil {
				return nil, err
			}
			m.Tensors[i].Runs = append(m.Tensors[i].Runs, t.Runs...)
		}
	}
	if !slices.ContainsFunc(m.Random, func(r json.RawMessage) bool { return r != nil }) {
		m.Random = nil
	}
	slices.SortFunc(m.Tensors, func(a, b TensorInfo) int { return strings.Compare(a.Name, b.Name) })
	for i := range m.Tensors {
		slices.SortFunc(m.Tensors[i].Runs, func(a, b RunInfo) int {
			if a.Offset != b.Offset {
				return a.Offset - b.Offset
			}
			return a.Len - b.Len
		})
	}
	if err := m.validate(); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	return m, nil
}

// matches checks that two ranks describe a tensor equally.
func (t *TensorInfo) matches(o *TensorInfo) error {
	a, errA := t.Tensor()
	b, errB := o.Tensor()
	if err := errors.Join(errA, errB); err != nil {
		return err
	}
	if !a.same(b) {
		return fmt.Errorf("%w: tensor %s is %v (%s) on rank %d and %v (%s) on rank %d", ErrInvalid, a.Name, a, a.Role, t.Runs[0].File, b, b.Role, o.Runs[0].File)
	}
	return nil
}

// ranksText returns "1, 3 and 7".
func ranksText(ranks []int) string {
	names := make([]string, len(ranks))
	for i, r := range ranks {
		names[i] = fmt.Sprint(r)
	}
	if n := len(names); n > 1 {
		return strings.Join(names[:n-1], ", ") + " and " + names[n-1]
	}
	return strings.Join(names, "")
}
