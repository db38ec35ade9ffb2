package ddp

import (
	"errors"
	"fmt"
	"strconv"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/dist/ddp/compress"
	"github.com/symgrad/symgrad/internal/drive"
	"github.com/symgrad/symgrad/symmetric"
	"github.com/symgrad/symgrad/tensor"
)

// exchanger is the exchange of full buckets: plain sums, messages of a hook, virtual ranks, local
// steps. Each is a type, which embeds plain.
type exchanger interface {
	// begin prepares a run, after one that may have failed.
	begin(failed bool)
	// check rejects a run that the exchanger does not support.
	check() error
	// weigh queues the exchange of the ranks' weights and the computation of this rank's factor.
	weigh() error
	// keep keeps the buckets of a run inside NoSync, if the next run must not add to them.
	keep() error
	// start queues the exchange of one bucket and returns the Work of its last part. Like a
	// collective it does not wait for peers.
	start(b *bucket) (dist.Work, error)
	// undo forgets a step that the solver has skipped or failed.
	undo()
	// bytes returns the bytes that this rank passes to the collectives of one bucket.
	bytes(b *bucket) int64
	// memory returns the bytes of its buffers and state.
	memory() int64
	// close frees its memory.
	close() error
}

// plain is the exchanger of one sum for each bucket, and of ranks that exchange nothing.
type plain struct {
	d     *DDP
	lines []*line // in the order of the buckets
}

// newPlain returns the exchanger of settings without messages of their own.
func newPlain(d *DDP, rest float64) plain {
	p := plain{d: d}
	for _, b := range d.buckets {
		p.lines = append(p.lines, newLine(d, b, d.cfg.actions(0, rest), &summing{d, b}))
	}
	return p
}

func (plain) begin(bool)    {}
func (plain) check() error  { return nil }
func (plain) keep() error   { return nil }
func (plain) undo()         {}
func (plain) memory() int64 { return 0 }
func (plain) close() error  { return nil }

func (p plain) weigh() error {
	d := p.d
	own := d.run.weight
	if d.run.joins {
		own = 1 // the slots hold weighted sums
	}
	return d.shares.send(d.batch.pending+d.run.weight, own)
}

func (p plain) start(b *bucket) (dist.Work, error) { return p.lines[b.index].start() }

func (p plain) bytes(b *bucket) int64 {
	if p.d.cfg.LocalSteps > 0 {
		return 0
	}
	return b.buf.Bytes()
}

// hooked applies a Hook to all buckets. All messages share one memory: the stream finishes those of
// one bucket before it begins the next.
type hooked struct {
	plain
	hook    compress.Hook
	mem     *messageMemory
	codings []*coding // in the order of the buckets

	heap   symmetric.Heap // of messages on GPUs; else nil
	region symmetric.Region
}

// coding is the worker of a hook's codec.
type coding struct {
	*line
	codec    compress.Codec
	undo     compress.Undoer // codec, if it is one
	messages []tensor.Buffer
	whole    bool // the message is elements of the bucket
	owned    [1]tensor.Buffer
	far      *farLine // on GPUs; else nil
	ran      bool     // the codec has read gradients of this step; the stream owns it, and bad
	bad      bool     // the gradient is not finite, so that the step is undone
}

func (l *coding) compute(a drive.Action) error {
	if a.Do == drive.Decode {
		return l.decompress(a.By)
	}
	return l.compress(a.Message)
}

func (l *coding) queue(a drive.Action) (dist.Work, error) { return l.sum(l.messages[a.Message]) }

func (l *coding) spoil(a drive.Action) { spoil(l.messages[a.Message]) }

// newHooked compares errors and messages over the ranks before it allocates memory. The result is
// never nil; close it after an error too.
//
// Collective: all ranks, one plan.
func newHooked(d *DDP, hook compress.Hook, rest float64) (*hooked, error) {
	x := &hooked{plain: plain{d: d}, hook: hook}
	all, err := x.makeLines(d, rest)
	lines, longest := make([]string, len(all)), int64(0)
	for i, messages := range all {
		lines[i] = fmt.Sprintf("messages of %s: %v", d.buckets[i].name, messages)
		longest = max(longest, messageBytes(messages))
	}
	if err := agree(d.team, lines, err); err != nil {
		return x, err
	}
	if d.team.onGPU() {
		err = x.allocateFar(longest)
	} else {
		x.mem, err = newMessageMemory(d.team.Group, longest)
	}
	if err != nil {
		return x, err
	}
	for i, l := range x.codings {
		if err := x.mem.carve(l.messages, all[i]); err != nil {
			return x, err
		}
		if err := x.carveFar(l, all[i]); err != nil {
			return x, err
		}
	}
	return x, nil
}

// makeLines makes the line of each bucket. It returns the messages of each.
func (x *hooked) makeLines(d *DDP, rest float64) ([][]compress.Message, error) {
	var all [][]compress.Message
	for i, b := range d.buckets {
		codec, err := x.hook.Codec(d.plan.hookBucket(i, d.team.Rank(), d.team.Size()))
		if err != nil {
			return all, fmt.Errorf("hook %v %s: %w", x.hook, b.name, err)
		}
		l := &coding{codec: codec, whole: x.hook.Elementwise()}
		l.undo, _ = codec.(compress.Undoer)
		messages := codec.Messages()
		l.line = newLine(d, b, d.cfg.actions(len(messages), rest), l)
		if len(messages) == 0 || l.whole && (len(messages) != 1 || messages[0].Elements != b.buf.Len()) {
			return all, fmt.Errorf("hook %v %s: %w: messages %v for %v", x.hook, b.name, dist.ErrInvalid, messages, b.buf)
		}
		l.messages = make([]tensor.Buffer, len(messages))
		x.codings, x.lines, all = append(x.codings, l), append(x.lines, l.line), append(all, messages)
	}
	return all, nil
}

func (x *hooked) stateful() bool {
	for _, l := range x.codings {
		if _, ok := l.codec.(compress.Stateful); ok {
			return true
		}
	}
	return false
}

func (x *hooked) bytes(b *bucket) int64 {
	total := int64(0)
	for _, m := range x.codings[b.index].messages {
		total += m.Bytes()
	}
	return total
}

func (x *hooked) memory() int64 {
	n := x.mem.raw.Bytes()
	for _, s := range x.d.HookState() {
		n += s.Data.Bytes()
	}
	return n
}

func (x *hooked) close() error { return errors.Join(x.mem.close(), x.closeFar()) }

func (x *hooked) check() error {
	if d := x.d; d.run.local && d.plan.staged() && x.stateful() {
		return d.cfg.needsWholeSteps()
	}
	return nil
}

// needsWholeSteps returns the error of a run inside NoSync with a hook that has state.
func (c *Config) needsWholeSteps() error {
	return fmt.Errorf("%w: hook %v keeps state of whole steps, and with Stage %d runs inside NoSync are reduced one by one; use Stage 1, or no error feedback",
		dist.ErrUnsupported, c.hook(), c.Stage)
}

// sum queues the sum of a message over the ranks.
func (l *coding) sum(message tensor.Buffer) (dist.Work, error) {
	if l.whole {
		return l.d.stage.reduce(l.b, message, dist.Sum)
	}
	return l.b.view.in.AllReduce(message, message, dist.Sum)
}

func (l *coding) compress(round int) error {
	if l.undo != nil {
		if err := l.check(); err != nil {
			return err // on all ranks: the step is undone, and no residual is sent for it
		}
	}
	share, err := l.share()
	if err != nil {
		return err
	}
	l.ran = true
	if err := l.codec.Compress(round, share, l.bucket(), l.messages); err != nil {
		return fmt.Errorf("%s round %s: %w", l.b.name, strconv.Itoa(round), err)
	}
	return nil
}

// bucket returns the gradients that the codec reads and writes.
func (l *coding) bucket() tensor.Buffer {
	if l.far != nil {
		return l.far.copy
	}
	return l.b.buf
}

// share returns the factor of this rank's gradients.
func (l *coding) share() (float64, error) {
	if l.far != nil {
		return l.far.share, nil
	}
	return l.d.shares.of(l.b.dtype)
}

// check returns an error if the sum of weights gives no mean.
func (l *coding) check() error {
	switch {
	case l.far == nil:
		return l.d.shares.check()
	case l.d.shares.factor.share.Exchanged():
		return checkSum(l.far.sum)
	}
	return nil
}

// decompress makes the gradient of the sums, times rest; with sharding, this rank's part of it.
func (l *coding) decompress(rest float64) error {
	to, from := l.bucket(), l.messages
	if l.whole && l.d.plan.sharded() {
		var err error
		if to, err = l.d.stage.part(l.b, to); err != nil {
			return err
		}
		if l.owned[0], err = l.d.stage.part(l.b, from[0]); err != nil {
			return err
		}
		from = l.owned[:]
	}
	if err := l.codec.Decompress(to, from); err != nil {
		return fmt.Errorf("%s: %w", l.b.name, err)
	}
	if err := multiply(to, rest); err != nil || l.undo == nil {
		return err
	}
	l.bad = !measurable(to)
	return nil
}
