package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"sync"
	"time"

	"github.com/symgrad/symgrad/tensor"
)

// Options holds the settings of a Saver. All fields except Rank must be equal on all ranks.
type Options struct {
	Dir     string          // folder of the checkpoints, which all ranks see; New of rank 0 makes it
	Keep    int             // number of checkpoints that stay; 0 means all
	Async   bool            // Save copies, and writes during training
	Sharded bool            // each rank writes a file; otherwise rank 0 writes one
	Rank    int             //
	Size    int             // number of ranks; 0 means 1
	Timeout time.Duration   // for rank 0's wait for the files of other ranks; 0 means 10 minutes
	Context context.Context // its end ends every write and wait, with its cause; nil means none. See dist.Group.Context
	Stop    context.Context // after its end rank 0 waits only for files that grow; nil means no such end
	Session string          // letters, digits, _ and -; best different at each start of the program. See New.
}

// Validate checks the fields.
//
// Errors: ErrInvalid.
func (o Options) Validate() error {
	size := max(o.Size, 1)
	switch {
	case o.Dir == "":
		return fmt.Errorf("checkpoint: %w: no folder is set", ErrInvalid)
	case o.Keep < 0:
		return fmt.Errorf("checkpoint: %w: keep %d checkpoints; 0 means all", ErrInvalid, o.Keep)
	case o.Size < 0 || o.Rank < 0 || o.Rank >= size:
		return fmt.Errorf("checkpoint: %w: rank %d of %d", ErrInvalid, o.Rank, o.Size)
	case o.Size > 99999:
		return fmt.Errorf("checkpoint: %w: %d ranks; names of files have 5 digits", ErrInvalid, o.Size)
	case o.Timeout < 0:
		return fmt.Errorf("checkpoint: %w: timeout %v", ErrInvalid, o.Timeout)
	case !sessionPattern.MatchString(o.Session):
		return fmt.Errorf("checkpoint: %w: session %q: want at most 64 of letters, digits, _ and -", ErrInvalid, o.Session)
	}
	return nil
}

// Saver writes checkpoints. Only one goroutine at a time may call its methods.
type Saver struct {
	o    Options
	sys  fileSystem
	lock *folderLock // nil on ranks other than 0

	mu       sync.Mutex
	running  chan struct{} // closed when the save in the background has ended; nil without one
	failed   error         // of that save
	closed   bool
	snapshot []uint64 // data of the save in the background; words, so that every element type is aligned
	highest  int      // highest step saved; -1 before the first
	again    int      // see repeats
}

// New returns a Saver. Rank 0 makes the folder, locks it until Close, and checks that it can be
// written. It then cleans up after killed programs: it removes folders that end in .tmp, except
// that a checkpoint which lacks only its name gets it. For a locked folder rank 0 waits up to 2
// seconds, because a killed program may take that long to end.
//
// All ranks must have a common operation, such as a barrier, between New and the first Save. With a
// Session, files of an earlier start that has not ended are never mixed with those of this one.
//
// Owns: the caller closes it. Errors: ErrInvalid, on rank 0 also if Dir is the folder of one
// checkpoint (see Is); ErrUnsupported; a *LockedError on rank 0 if another run saves to the folder;
// those of the file system.
func New(o Options) (*Saver, error) { return openSaver(o, disk{}, lockPatience) }

func newSaver(o Options, sys fileSystem) (*Saver, error) { return openSaver(o, sys, 0) }

// openSaver is New on a file system, with a time to wait for a locked folder.
func openSaver(o Options, sys fileSystem, patience time.Duration) (*Saver, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	if err := checkByteOrder(); err != nil {
		return nil, err
	}
	o.Size = max(o.Size, 1)
	if o.Timeout == 0 {
		o.Timeout = 10 * time.Minute
	}
	s := &Saver{o: o, sys: sys, highest: -1}
	if o.Rank == 0 {
		err := s.prepare(patience)
		if locked := (*LockedError)(nil); errors.As(err, &locked) {
			return nil, locked // it names the folder already
		}
		if err != nil {
			return nil, fmt.Errorf("checkpoint: folder %s: %w", o.Dir, errors.Join(err, s.lock.release()))
		}
	}
	return s, nil
}

// prepare is rank 0's part of New.
func (s *Saver) prepare(patience time.Duration) error {
	if Is(s.o.Dir) { // Open would read it as one checkpoint, and find none inside
		return fmt.Errorf("%w: it is, or has the name of, the folder of one checkpoint: use its parent folder", ErrInvalid)
	}
	if err := makeFolder(s.sys, s.o.Dir); err != nil {
		return explain(err)
	}
	var err error
	if s.lock, err = lockFolder(s.sys, s.o.Dir, patience); err != nil {
		return explain(err)
	}
	const probe = ".probe" // like lockName, unlikely to be another program's file
	if err := writeText(s.sys, s.o.Dir, probe, []byte("symgrad tries whether it can write here\n")); err != nil {
		return err
	}
	if err := s.sys.Remove(filepath.Join(s.o.Dir, probe)); err != nil {
		return explain(err)
	}
	return explain(recoverFolders(s.sys, s.o.Dir))
}

// Save writes a checkpoint: all of m, and the runs of this rank. The runs of all ranks together
// must have each element of each tensor once, except Replicated ones.
//
// With Options.Async it copies the runs to memory that the Saver keeps, and returns. It first waits
// for the previous save, if that is still being written. Otherwise it writes the runs from their
// own memory, and returns when the checkpoint is durable. Without Options.Sharded ranks other than
// 0 do nothing.
//
// Collective: all ranks, same steps. No rank waits for another, except rank 0, which does so in the
// background if Async. Owns: nothing after it returned. Ends: with Options.Context, before the next
// write.
//
// Errors: ErrInvalid for invalid runs; then this rank writes no file, and rank 0 gets the reason.
// ErrClosed. A *SaveError if this save failed, or the previous one in the background; in the latter
// case this save still runs. A failed save does not change existing checkpoints. A *PruneError if
// the save succeeded but an older checkpoint could not be removed; Wait and Close return it too.
func (s *Saver) Save(m Meta, runs []Run) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return fmt.Errorf("checkpoint: step %d, rank %d: the saver is %w", m.Step, s.o.Rank, ErrClosed)
	}
	before := s.wait()
	if s.o.Rank > 0 && !s.o.Sharded {
		return before
	}
	again := s.repeats(m.Step)
	job, err := s.plan(m, runs)
	if err != nil {
		s.decline(m.Step, again, err)
		return errors.Join(before, &SaveError{m.Step, s.o.Rank, err})
	}
	job.again = again
	if !s.o.Async {
		return errors.Join(before, s.write(job))
	}
	done := make(chan struct{})
	s.running = done
	s.lock.hold()
	go func() { // ended by wait
		s.failed = errors.Join(s.write(job), s.lock.release())
		close(done)
	}()
	return before
}

// repeats returns the number of saves so far, including this one, whose step is not above all
// earlier steps. It is equal on all ranks. With it in the name, a rank that is ahead does not write
// to the folder of an earlier save that rank 0 has not renamed yet.
func (s *Saver) repeats(step int) int {
	if step > s.highest {
		s.highest = step
	} else {
		s.again++
	}
	return s.again
}

// Wait returns when this rank has done its part of the last Save. A checkpoint is whole when Wait
// of rank 0 has returned nil.
//
// Errors: a *SaveError if the save failed and Save has not returned it.
func (s *Saver) Wait() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.wait()
}

// wait is Wait with the mutex held.
func (s *Saver) wait() error {
	if s.running == nil {
		return nil
	}
	if err := s.await(); err != nil {
		return err
	}
	err := s.failed
	s.running, s.failed = nil, nil
	return err
}

// Unlocked returns the reason why the folder has no lock, so that programs can warn: the file
// system has no locks, or its lock service does not answer. Then no run notices another run that
// saves to the folder.
//
// Returns: nil for a locked folder, and on ranks other than 0.
func (s *Saver) Unlocked() error {
	if s.lock == nil {
		return nil
	}
	return s.lock.none
}

// Close waits like Wait, then frees the Saver's memory and releases the folder's lock. A second
// Close does nothing.
func (s *Saver) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return errors.Join(s.wait(), s.end())
}

// Abandon closes the Saver of a failed run without waiting. A save in the background continues, or
// ends when the other ranks' files do not come; the folder stays locked until then.
//
// Errors: those of the file system.
func (s *Saver) Abandon() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.end()
}

// end closes the Saver.
func (s *Saver) end() error {
	if s.closed {
		return nil
	}
	s.closed, s.snapshot = true, nil
	return s.lock.release()
}

// RunShare returns the part of a replicated run of n elements that a rank writes: whole blocks of
// 256 elements, so that the last ranks may have fewer elements, or none.
//
// Returns: the first element, relative to the run, and the number of elements.
func RunShare(n, rank, size int) (offset, length int) {
	const block = 256
	blocks := (n + block - 1) / block
	share := (blocks + size - 1) / size * block
	offset = min(rank*share, n)
	return offset, min(share, n-offset)
}

// stored is a run in this rank's file.
type stored struct {
	tensor Tensor
	offset int
	n      int
	data   []byte
}

// job is a planned save. It shares no memory with the caller of Save, except data if not Async.
type job struct {
	meta    Meta
	again   int // see Saver.repeats
	runs    []stored
	entries []Entry // one for each of runs
	order   []int   // of entries in the file
}

// plan checks the arguments of Save, and copies them as needed.
func (s *Saver) plan(m Meta, runs []Run) (*job, error) {
	j := &job{meta: m}
	if err := j.meta.settle(); err != nil {
		return nil, err
	}
	words, sources := 0, []Run(nil)
	for i := range runs {
		r := runs[i]
		if err := r.check(); err != nil {
			return nil, err
		}
		if r.Replicated && s.o.Sharded {
			at, n := RunShare(r.Len, s.o.Rank, s.o.Size)
			if r.Fetch == nil {
				r.Data, _ = r.Data.Slice(at, at+n) // cannot fail: check compared its length
			}
			r.Offset, r.Len = r.Offset+at, n
		}
		if r.Len == 0 && r.Tensor.Len() > 0 {
			continue // the entry would be empty
		}
		sources = append(sources, r)
		j.runs = append(j.runs, stored{tensor: r.Tensor.clone(), offset: r.Offset, n: r.Len})
		j.entries = append(j.entries, entryOf(&r))
		if s.o.Async || r.Fetch != nil {
			words += (r.Len*r.Tensor.DType.Size() + 7) / 8
		}
	}
	var err error
	if j.order, err = layOut(j.entries); err != nil {
		return nil, err
	}
	if words > cap(s.snapshot) {
		s.snapshot = make([]uint64, words)
	}
	return j, s.copyRuns(j, sources, s.snapshot[:words])
}

// copyRuns sets the bytes of each run of j: in the snapshot, or in the caller's memory.
func (s *Saver) copyRuns(j *job, sources []Run, snapshot []uint64) error {
	all, at := tensor.Of(snapshot).Raw(), 0
	for i := range sources {
		r := &sources[i]
		if !s.o.Async && r.Fetch == nil {
			j.runs[i].data = r.Data.Raw()
			continue
		}
		bytes := r.Len * r.Tensor.DType.Size()
		own := all[at : at+bytes : at+bytes]
		at += (bytes + 7) &^ 7
		j.runs[i].data = own
		if r.Fetch == nil {
			copy(own, r.Data.Raw())
			continue
		}
		dst, err := bufferOver(own, r.Len, r.Tensor.DType)
		if err == nil {
			err = r.Fetch(r.Offset, dst)
		}
		if err != nil {
			return fmt.Errorf("tensor %s: elements %d to %d: %w", r.Tensor.Name, r.Offset, r.Offset+r.Len, err)
		}
	}
	return nil
}

// check compares the fields of a run with each other.
func (r *Run) check() error {
	if err := r.Tensor.validate(); err != nil {
		return err
	}
	t := r.Tensor
	switch {
	case r.Offset < 0 || r.Len < 0 || r.Offset > math.MaxInt-r.Len || r.Offset+r.Len > t.Len():
		return fmt.Errorf("%w: tensor %s: a run of %d elements from %d, it has %d", ErrInvalid, t.Name, r.Len, r.Offset, t.Len())
	case r.Fetch != nil:
		return nil
	case r.Data.Len() != r.Len || r.Data.DType() != t.DType && r.Len > 0:
		return fmt.Errorf("%w: tensor %s: a run of %d %v, its data is %v", ErrInvalid, t.Name, r.Len, t.DType, r.Data)
	case r.Data.Device() != tensor.Host:
		return fmt.Errorf("%w: tensor %s: its data is on %v: set Fetch", ErrInvalid, t.Name, r.Data.Device())
	}
	return nil
}
