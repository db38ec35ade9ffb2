package ddp

import (
	"errors"
	"fmt"
	"strconv"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/dist/ddp/compress"
	"github.com/symgrad/symgrad/internal/host/reduce"
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

// plain is the exchanger of one reduction for each bucket.
type plain struct{ d *DDP }

func (plain) begin(bool)            {}
func (plain) check() error          { return nil }
func (plain) keep() error           { return nil }
func (plain) undo()                 {}
func (plain) bytes(b *bucket) int64 { return b.buf.Bytes() }
func (plain) memory() int64         { return 0 }
func (plain) close() error          { return nil }

func (p plain) weigh() error {
	d := p.d
	own := d.run.weight
	if d.run.joins {
		own = 1 // the slots hold weighted sums
	}
	return d.shares.send(d.batch.pending+d.run.weight, own)
}

func (p plain) start(b *bucket) (dist.Work, error) { return p.d.stage.reduce(b, b.buf, b.red) }

// hooked applies a Hook to all buckets. All messages share one memory: the stream finishes those of
// one bucket before it begins the next.
type hooked struct {
	plain
	hook  compress.Hook
	mem   *messageMemory
	lines []*line // in the order of the buckets

	heap   symmetric.Heap // of messages on GPUs; else nil
	region symmetric.Region
}

// line is the exchange of one bucket. It is a dist.Runner whose parts are the rounds, and then the
// decompression.
type line struct {
	d        *DDP
	b        *bucket
	codec    compress.Codec
	undo     compress.Undoer // codec, if it is one
	rest     float64         // factor of the sum
	messages []tensor.Buffer
	sums     []dist.Work // of the messages
	whole    bool        // the message is elements of the bucket
	owned    [1]tensor.Buffer
	far      *farLine // on GPUs; else nil
	err      error    // of a part of this step; the stream owns it, and the fields below
	ran      bool     // the codec has read gradients of this step
	bad      bool     // the gradient is not finite, so that the step is undone
}

// newHooked compares errors and messages over the ranks before it allocates memory. The result is
// never nil; close it after an error too.
//
// Collective: all ranks, one plan.
func newHooked(d *DDP, hook compress.Hook, rest float64) (*hooked, error) {
	x := &hooked{plain: plain{d}, hook: hook}
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
	for i, l := range x.lines {
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
		l := &line{d: d, b: b, codec: codec, rest: rest, whole: x.hook.Elementwise()}
		l.undo, _ = codec.(compress.Undoer)
		messages := codec.Messages()
		if len(messages) == 0 || l.whole && (len(messages) != 1 || messages[0].Elements != b.buf.Len()) {
			return all, fmt.Errorf("hook %v %s: %w: messages %v for %v", x.hook, b.name, dist.ErrInvalid, messages, b.buf)
		}
		l.sums = make([]dist.Work, len(messages))
		l.messages = make([]tensor.Buffer, len(messages))
		x.lines, all = append(x.lines, l), append(all, messages)
	}
	return all, nil
}

func (x *hooked) stateful() bool {
	for _, l := range x.lines {
		if _, ok := l.codec.(compress.Stateful); ok {
			return true
		}
	}
	return false
}

func (x *hooked) bytes(b *bucket) int64 {
	total := int64(0)
	for _, m := range x.lines[b.index].messages {
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

func (x *hooked) start(b *bucket) (dist.Work, error) {
	l := x.lines[b.index]
	l.err = nil // the last step's parts have run
	for r := range l.messages {
		compressed, err := l.d.team.inOrder(l, b.name, uint64(r))
		if err != nil {
			return dist.Work{}, err
		}
		if l.sums[r], err = l.sum(l.messages[r]); err != nil {
			_ = compressed.Wait()
			return dist.Work{}, err
		}
	}
	return l.d.team.inOrder(l, b.name, uint64(len(l.messages)))
}

// sum queues the sum of a message over the ranks.
func (l *line) sum(message tensor.Buffer) (dist.Work, error) {
	if l.whole {
		return l.d.stage.reduce(l.b, message, dist.Sum)
	}
	return l.b.view.in.AllReduce(message, message, dist.Sum)
}

// Run runs one part. If a round fails, the bucket gets the error, and the other ranks get NaN for
// the round's sums.
func (l *line) Run(_ *dist.Op, part uint64) error {
	round := int(part)
	for _, w := range l.sums[:round] {
		if err := w.Wait(); err != nil { // done, in stream order
			return err
		}
	}
	if round > 0 { // set before this part was queued
		if err := l.b.scattered.Wait(); err != nil {
			return err
		}
	}
	if round < len(l.messages) && l.err == nil {
		l.err = l.compress(round)
	}
	switch {
	case l.err == nil && round == len(l.messages):
		l.err = l.decompress()
	case l.err != nil && round < len(l.messages):
		spoil(l.messages[round])
	}
	return l.err
}

// spoil sets a message to NaN, if of floating-point numbers, so that its old contents are not used
// as a gradient.
func spoil(message tensor.Buffer) {
	raw := message.Raw()
	for i := range raw {
		raw[i] = 0xff
	}
}

func (l *line) compress(round int) error {
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
func (l *line) bucket() tensor.Buffer {
	if l.far != nil {
		return l.far.copy
	}
	return l.b.buf
}

// share returns the factor of this rank's gradients.
func (l *line) share() (float64, error) {
	if l.far != nil {
		return l.far.share, nil
	}
	return l.d.shares.of(l.b.dtype)
}

// check returns an error if the sum of weights gives no mean.
func (l *line) check() error {
	switch {
	case l.far == nil:
		return l.d.shares.check()
	case l.d.shares.factor.share.Exchanged():
		return checkSum(l.far.sum)
	}
	return nil
}

// decompress makes the gradient of the sums; with sharding, this rank's part of it.
func (l *line) decompress() error {
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
	if err := multiply(to, l.rest); err != nil || l.undo == nil {
		return err
	}
	l.bad = !measurable(to)
	return nil
}

// scaled reduces buckets, or leaves them local, and multiplies them by a number: the rest of
// PreDivide, or this rank's share of its own micro-batches.
type scaled struct {
	plain
	lines []*scaling // in the order of the buckets
	alone bool
}

// scaling is the multiplication of one bucket. It is a dist.Runner.
type scaling struct {
	d     *DDP
	b     *bucket
	rest  float64
	alone bool
	sum   dist.Work
}

func newScaled(d *DDP, rest float64, alone bool) *scaled {
	x := &scaled{plain: plain{d}, alone: alone}
	for _, b := range d.buckets {
		x.lines = append(x.lines, &scaling{d: d, b: b, rest: rest, alone: alone})
	}
	return x
}

func (x *scaled) start(b *bucket) (dist.Work, error) {
	l := x.lines[b.index]
	if !l.alone {
		var err error
		if l.sum, err = l.d.stage.reduce(b, b.buf, b.red); err != nil {
			return dist.Work{}, err
		}
	}
	return l.d.team.inOrder(l, b.name, 0)
}

func (x *scaled) bytes(b *bucket) int64 {
	if x.alone {
		return 0
	}
	return b.buf.Bytes()
}

func (l *scaling) Run(*dist.Op, uint64) error {
	for _, w := range [...]dist.Work{l.b.scattered, l.sum} {
		if err := w.Wait(); err != nil {
			return err
		}
	}
	by := l.rest
	if l.alone {
		var err error
		if by, err = l.d.shares.of(l.b.buf.DType()); err != nil {
			return err
		}
	}
	to, err := l.d.stage.part(l.b, l.b.buf)
	if err != nil {
		return err
	}
	return multiply(to, by)
}

// multiply computes x[i] *= by for every element of b.
func multiply(b tensor.Buffer, by float64) error {
	if by == 1 {
		return nil
	}
	return reduce.Weighted(b, []tensor.Buffer{b}, []float64{by})
}
