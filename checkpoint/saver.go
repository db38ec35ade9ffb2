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

// Options is how a Saver saves. All ranks have the same, but for Rank.
type Options struct {
	Dir     string          // the folder of the checkpoints; all ranks see one. New of rank 0 makes it
	Keep    int             // how many checkpoints stay; 0 means all
	Async   bool            // Save copies, and writes while training goes on
	Sharded bool            // each rank writes a file; otherwise rank 0 writes one
	Rank    int             //
	Size    int             // number of ranks; 0 means 1
	Timeout time.Duration   // how long rank 0 waits for the files of the others; 0 means 10 minutes
	Context context.Context // at its end every write and wait ends, with its cause; nil means none. See dist.Group.Context
	Stop    context.Context // after its end rank 0 waits only for files that grow; nil means that it waits for all
	Session string          // letters, digits, _ and -; the same on all ranks, and best another at each start of the program. See New.
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

// Saver writes checkpoints. Its methods may be called by one goroutine at a time.
type Saver struct {
	o    Options
	sys  fileSystem
	lock *folderLock // nil on ranks other than 0

	mu       sync.Mutex
	running  chan struct{} // closed when the save in the background has ended; nil if there is none
	failed   error         // of that save
	closed   bool
	snapshot []uint64 // what the save in the background writes; words, so that every element type is aligned in it
	highest  int      // step that has been saved; -1 before the first
	again    int      // see repeats
}

// New is a Saver. Rank 0 makes the folder, locks it until Close, tries whether it can be written,
// and clears away what a program that was killed left there: folders that end in .tmp, of which one
// that lacks nothing but its name becomes a checkpoint. A folder that is locked is tried for 2
// seconds, which is what a program that was killed may take to end. Some operation of all ranks has
// to lie between New and the first Save. With a Session, files of an earlier start that is still
// dying are never taken for those of this one.
//
// Owns: the caller closes it. Errors: ErrInvalid, on rank 0 also for a Dir that Is the folder of
// one checkpoint; ErrUnsupported; a *LockedError on rank 0 if another run saves to the folder;
// those of the file system.
func New(o Options) (*Saver, error) { return openSaver(o, disk{}, lockPatience) }

func newSaver(o Options, sys fileSystem) (*Saver, error) { return openSaver(o, sys, 0) }

// openSaver is New on a disk, for so long in vain where the folder is locked.
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
			return nil, locked // which says all
		}
		if err != nil {
			return nil, fmt.Errorf("checkpoint: folder %s: %w", o.Dir, errors.Join(err, s.lock.release()))
		}
	}
	return s, nil
}

// prepare is what New does on rank 0.
func (s *Saver) prepare(patience time.Duration) error {
	if Is(s.o.Dir) { // Open would look for one there, and for none in it
		return fmt.Errorf("%w: it is, or is called like, the folder of one checkpoint: name the folder that it is in", ErrInvalid)
	}
	if err := makeFolder(s.sys, s.o.Dir); err != nil {
		return explain(err)
	}
	var err error
	if s.lock, err = lockFolder(s.sys, s.o.Dir, patience); err != nil {
		return explain(err)
	}
	const probe = ".probe" // like lockName no name of somebody else's file
	if err := writeText(s.sys, s.o.Dir, probe, []byte("symgrad tries whether it can write here\n")); err != nil {
		return err
	}
	if err := s.sys.Remove(filepath.Join(s.o.Dir, probe)); err != nil {
		return explain(err)
	}
	return explain(recoverFolders(s.sys, s.o.Dir))
}

// Save writes a checkpoint: all of m, and the runs of this rank. Together the runs of all ranks
// have each element of each tensor once (Replicated ones aside).
//
// With Options.Async it copies the runs to memory that is kept for the next time, and returns; it
// waits first for the save before, if that is still being written. Otherwise it writes runs from
// where they lie, and returns when the checkpoint is durable. Without Options.Sharded ranks other
// than 0 have nothing to do.
//
// Collective: all ranks, same steps; but no rank waits for another, except rank 0, in the
// background if Async. Owns: nothing after it returned. Ends: with Options.Context, at the next
// piece that is written. Errors: ErrInvalid for runs that make no sense, in which case no file is
// written, and rank 0 is told. ErrClosed. A *SaveError if this save failed, or the one before in
// the background; in the latter case this one is made all the same. A failed save leaves the
// checkpoints that are there as they are. A *PruneError in place of it where the save is whole, and
// an older checkpoint could not be removed; Wait and Close return it, too.
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

// repeats is how many saves so far, one of step included, are of a step that is not higher than all
// before, the same on all ranks. By it a rank that is ahead writes to another folder than the one
// that rank 0 has not renamed yet.
func (s *Saver) repeats(step int) int {
	if step > s.highest {
		s.highest = step
	} else {
		s.again++
	}
	return s.again
}

// Wait returns when what this rank has to do for the last Save is done. A checkpoint is whole when
// Wait of rank 0 has returned nil.
//
// Errors: a *SaveError if the save failed and Save has not told so.
func (s *Saver) Wait() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.wait()
}

// wait is Wait with the lock held.
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

// Unlocked is why the folder has no lock, for programs to warn of it: the file system has none, or
// what keeps them for all hosts does not answer. Then nobody finds out if another run saves to the
// folder.
//
// Returns: nil for a folder that is locked, and on ranks other than 0.
func (s *Saver) Unlocked() error {
	if s.lock == nil {
		return nil
	}
	return s.lock.none
}

// Close is Wait, after which the Saver is of no use, its memory is free and the folder is another's
// to lock. A second Close does nothing.
func (s *Saver) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return errors.Join(s.wait(), s.end())
}

// Abandon is Close for a run that has failed, and does not wait: what is being written in the
// background is written, or given up when the other ranks' files do not come, and the folder stays
// locked until then.
//
// Errors: those of the file system.
func (s *Saver) Abandon() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.end()
}

// end makes the Saver one that is closed.
func (s *Saver) end() error {
	if s.closed {
		return nil
	}
	s.closed, s.snapshot = true, nil
	return s.lock.release()
}

// RunShare is the share of a replicated run of n elements that a rank writes: whole blocks of 256
// elements, so that the last ranks may have fewer, or none.
//
// Returns: the first element, from that of the run, and the number.
func RunShare(n, rank, size int) (offset, length int) {
	const block = 256
	blocks := (n + block - 1) / block
	share := (blocks + size - 1) / size * block
	offset = min(rank*share, n)
	return offset, min(share, n-offset)
}

// stored is a run that goes to this rank's file.
type stored struct {
	tensor Tensor
	offset int
	n      int
	data   []byte
}

// job is a save that is planned: nothing in it belongs to the caller of Save any more, except data
// if not Async.
type job struct {
	meta    Meta
	again   int // see Saver.repeats
	runs    []stored
	entries []Entry // one for each of runs
	order   []int   // of entries in the file
}

// plan checks what Save got, and copies what it must.
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
				r.Data, _ = r.Data.Slice(at, at+n) // within it: check saw its length
			}
			r.Offset, r.Len = r.Offset+at, n
		}
		if r.Len == 0 && r.Tensor.Len() > 0 {
			continue // the entry would say nothing
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

// copyRuns gives each run of j its bytes: in the snapshot, or where the caller has them.
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

// check compares the parts of a run with each other.
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
