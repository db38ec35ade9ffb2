package checkpoint

import (
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"path/filepath"
)

// castagnoli is the CRC polynomial for which processors have an instruction.
var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// chunk is the number of bytes of one write: large enough for the file system, and small enough
// that the data stays in the cache between checksum and write.
const chunk = 1 << 20

// part describes a rank's file for rank 0, or the reason why it is missing.
type part struct {
	Step       int             `json:"step"`
	Rank       int             `json:"rank"`
	Size       int             `json:"size"`
	ConfigHash string          `json:"config_hash"`
	PlanHash   string          `json:"plan_hash"`
	Random     json.RawMessage `json:"random,omitempty"`
	File       FileInfo        `json:"file"`
	Tensors    []TensorInfo    `json:"tensors"`
	Error      string          `json:"error,omitempty"`
}

const partSuffix = ".part"

// partName returns the file name of a part. A whole checkpoint has no parts.
func partName(rank, size int) string {
	return fmt.Sprintf("rank-%05d-of-%05d%s", rank, size, partSuffix)
}

// files returns the number of files of a checkpoint.
func (s *Saver) files() int {
	if s.o.Sharded {
		return s.o.Size
	}
	return 1
}

// write is the whole save of this rank.
func (s *Saver) write(j *job) error {
	staging := filepath.Join(s.o.Dir, stagingName(j.meta.Step, s.o.Session, j.again))
	own, err := s.writeOwn(staging, j)
	err = s.explainGone(staging, err)
	if s.o.Rank > 0 {
		if err != nil && s.cause() == nil { // otherwise rank 0 ends too, with the same cause
			own.Error = err.Error() // rank 0 need not wait for this file
			_ = s.writePart(staging, own)
		} else if err == nil {
			err = s.explainGone(staging, s.writePart(staging, own))
		}
	} else {
		if err == nil {
			err = s.explainGone(staging, s.commit(staging, j, own))
		}
		var after *PruneError
		if errors.As(err, &after) {
			return after
		}
		if err != nil {
			_ = removeTree(s.sys, staging) // the next save or New removes the rest
		}
	}
	if err != nil {
		return &SaveError{j.meta.Step, s.o.Rank, err}
	}
	return nil
}

// explainGone adds the reason to an error about a missing file or folder. Another rank may have
// noticed first that the group has ended, and may be removing the unfinished save file by file. So
// the end of Options.Context is the reason if it comes within endPatience.
func (s *Saver) explainGone(staging string, err error) error {
	if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if _, gone := s.sys.ReadDir(s.o.Dir); errors.Is(gone, fs.ErrNotExist) {
		return fmt.Errorf("%w: the folder must exist, and all ranks must see it", err)
	}
	if cause := s.causeSoon(); cause != nil {
		return cause
	}
	if _, gone := s.sys.ReadDir(staging); errors.Is(gone, fs.ErrNotExist) {
		who := "another program"
		if s.o.Rank > 0 {
			who = "rank 0, which then returns the reason, or another program"
		}
		return fmt.Errorf("%w: %s has removed the unfinished save: if another run saves to %s, give it a folder of its own", err, who, s.o.Dir)
	}
	return err
}

// writeOwn writes this rank's file.
func (s *Saver) writeOwn(staging string, j *job) (part, error) {
	p := part{
		Step: j.meta.Step, Rank: s.o.Rank, Size: s.o.Size,
		ConfigHash: j.meta.ConfigHash, PlanHash: j.meta.PlanHash, Random: j.meta.Random,
		File: FileInfo{Name: fileName(s.o.Rank, s.files(), s.o.Sharded), Rank: s.o.Rank},
	}
	for i, r := range j.runs {
		info := infoOf(r.tensor)
		info.Runs = []RunInfo{{File: s.o.Rank, Entry: j.entries[i].Name, Offset: r.offset, Len: r.n}}
		p.Tensors = append(p.Tensors, info)
	}
	header, err := encodeHeader(map[string]string{
		"format": Format, "step": fmt.Sprint(j.meta.Step), "rank": fmt.Sprint(s.o.Rank), "world_size": fmt.Sprint(s.o.Size),
	}, j.entries, j.order)
	if err != nil {
		return p, err
	}
	if err := s.sys.Mkdir(staging); err != nil && !errors.Is(err, fs.ErrExist) {
		return p, explain(err)
	}
	err = writeWhole(s.sys, staging, p.File.Name, func(w file) error {
		sum := summed{w: ending{w, s}, flush: flushBytes}
		if err := sum.write(header); err != nil {
			return err
		}
		for _, i := range j.order {
			if err := sum.write(j.runs[i].data); err != nil {
				return fmt.Errorf("%w (after %d B of tensor %s)", err, sum.bytes, j.entries[i].Name)
			}
		}
		p.File.Bytes, p.File.CRC32C = sum.bytes, sum.text()
		return nil
	})
	return p, err
}

// writePart writes a part for rank 0, after all flushes of this rank: rank 0 may rename the folder
// as soon as it reads the part.
func (s *Saver) writePart(staging string, p part) error {
	text, err := json.Marshal(p)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	return putWhole(s.sys, staging, partName(p.Rank, p.Size), filled(text))
}

// decline writes a part with the reason why this rank has no file. If that fails, rank 0 waits
// until its timeout.
func (s *Saver) decline(step, again int, why error) {
	if s.o.Rank == 0 || step < 0 {
		return
	}
	staging := filepath.Join(s.o.Dir, stagingName(step, s.o.Session, again))
	_ = s.sys.Mkdir(staging) // another rank may have made it
	_ = s.writePart(staging, part{Step: step, Rank: s.o.Rank, Size: s.o.Size, Error: why.Error()})
}

// summed writes to a file and computes the checksum of its data.
type summed struct {
	w     file
	sum   uint32
	bytes int64
	flush int64 // bytes between two flushes; 0 means no flush before the end
}

func (s *summed) write(p []byte) error {
	for len(p) > 0 {
		n := min(len(p), chunk)
		s.sum = crc32.Update(s.sum, castagnoli, p[:n])
		if _, err := s.w.Write(p[:n]); err != nil {
			return err
		}
		s.bytes += int64(n)
		p = p[n:]
		if s.flush > 0 && s.bytes/s.flush > (s.bytes-int64(n))/s.flush {
			if err := s.w.Sync(); err != nil {
				return err
			}
		}
	}
	return nil
}

// text returns the checksum as in a manifest.
func (s *summed) text() string { return fmt.Sprintf("%08x", s.sum) }
