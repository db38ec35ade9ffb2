package checkpoint

import (
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"path/filepath"
)

// castagnoli is the polynomial that processors have an instruction for.
var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// chunk is how much is written at once: large enough for the file system, and the checksum leaves
// it in the cache for the write.
const chunk = 1 << 20

// part is what a rank tells rank 0 about its file, or why there is none.
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

// partName is the file of a part. It is gone when the checkpoint is whole.
func partName(rank, size int) string {
	return fmt.Sprintf("rank-%05d-of-%05d%s", rank, size, partSuffix)
}

// files is how many files a checkpoint has.
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
		if err != nil && s.cause() == nil { // else rank 0 ends too, and knows why
			own.Error = err.Error() // rank 0 need not wait for what does not come
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
			_ = removeTree(s.sys, staging) // what is left is removed by the next save or New
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
		return fmt.Errorf("%w: the folder has to be there, and one that all ranks see", err)
	}
	if cause := s.causeSoon(); cause != nil {
		return cause
	}
	if _, gone := s.sys.ReadDir(staging); errors.Is(gone, fs.ErrNotExist) {
		who := "somebody"
		if s.o.Rank > 0 {
			who = "rank 0, which then says why, or somebody"
		}
		return fmt.Errorf("%w: %s has removed what was being saved: if another run saves to %s, give it a folder of its own", err, who, s.o.Dir)
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

// writePart leaves a part for rank 0, which may rename the folder as soon as it sees it: what this
// rank flushes lies before it.
func (s *Saver) writePart(staging string, p part) error {
	text, err := json.Marshal(p)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	return putWhole(s.sys, staging, partName(p.Rank, p.Size), filled(text))
}

// decline tells rank 0 why there is no file of this rank. What cannot be told it finds out when it
// has waited in vain.
func (s *Saver) decline(step, again int, why error) {
	if s.o.Rank == 0 || step < 0 {
		return
	}
	staging := filepath.Join(s.o.Dir, stagingName(step, s.o.Session, again))
	_ = s.sys.Mkdir(staging) // or another rank has made it
	_ = s.writePart(staging, part{Step: step, Rank: s.o.Rank, Size: s.o.Size, Error: why.Error()})
}

// summed writes to a file and sums what it writes.
type summed struct {
	w     file
	sum   uint32
	bytes int64
	flush int64 // bytes between two flushes of a file; 0 means that it is flushed only at its end
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

// text is the checksum as a manifest has it.
func (s *summed) text() string { return fmt.Sprintf("%08x", s.sum) }
