package ddp

import (
	"fmt"
	"strconv"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/dist/ddp/compress"
	"github.com/symgrad/symgrad/internal/reduce"
	"github.com/symgrad/symgrad/tensor"
)

// exchanger exchanges full buckets by more than one reduction.
type exchanger interface {
	// start queues the exchange of one bucket and returns the Work of its last part. Like a
	// collective it does not wait for peers.
	start(b *bucket) (dist.Work, error)
	// bytes returns the bytes that this rank passes to the collectives of one bucket.
	bytes(b *bucket) int64
	// close frees its memory.
	close() error
}

// nextRun returns the state of a run that begins now.
func (d *DDP) nextRun() run {
	r := run{local: d.noSync, apart: d.virtual != nil, weight: d.weight}
	r.joins = d.micro > 0 && !d.run.running && !r.apart
	return r
}

// allocateWire makes the exchanger of the settings. The buckets have their memory.
//
// Collective: all ranks, one plan.
func (d *DDP) allocateWire() error {
	c := &d.cfg
	if c.Factor == 0 {
		c.Factor = c.Average.defaultFactor(d.team.total())
	}
	rest := c.Average.rest(float64(d.team.total()), c.Factor)
	var err error
	switch h := c.hook(); {
	case h != nil && d.team.onGPU():
		var x *deviceWire
		if x, err = newDeviceWire(d); err == nil {
			d.wire = x
		}
	case h != nil:
		d.wire, err = newHooked(d, h, rest)
	case c.VirtualRanks > 0:
		d.virtual, err = newVirtual(d)
		d.wire = d.virtual
	case c.LocalSteps > 0:
		d.wire = newScaled(d, 1, true)
	case rest != 1:
		d.wire = newScaled(d, rest, false)
	}
	return err
}

func (d *DDP) closeWire() error {
	if d.wire == nil {
		return nil
	}
	return d.wire.close()
}

// WireBytes returns the bytes of gradients that this rank passes to collectives in one step:
// buckets, or the messages of a WireDType or Hook, and with Replicas
// its parts of them once more. The bytes that a backend moves may differ.
func (d *DDP) WireBytes() int64 {
	total := int64(0)
	for _, b := range d.buckets {
		total += d.wireBytes(b)
	}
	return total
}

func (d *DDP) wireBytes(b *bucket) int64 {
	n := b.buf.Bytes()
	if d.wire != nil {
		n = d.wire.bytes(b)
	}
	if d.team.across != nil {
		n += n / int64(d.team.Size()) // this rank's part, over the replicas
	}
	return n
}

// share returns the factor of a bucket, which is known when the stream has reached the bucket.
func (d *DDP) share(dt tensor.DType) (float64, error) {
	if dt == tensor.F64 {
		f, err := tensor.Data[float64](d.mem.scales[1])
		if err != nil {
			return 0, err
		}
		return f[0], nil
	}
	f, err := tensor.Data[float32](d.mem.scales[0])
	if err != nil {
		return 0, err
	}
	return float64(f[0]), nil
}

// hooked applies a Hook to all buckets. All messages share one memory: the stream finishes those of
// one bucket before it begins the next.
type hooked struct {
	hook  compress.Hook
	mem   *messageMemory
	lines []*line // in the order of the buckets
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
	err      error // of a part of this step; the stream owns it, and the fields below
	ran      bool  // the codec has read gradients of this step
	bad      bool  // the gradient is not finite, so that the step is undone
}

// newHooked compares errors and messages over the ranks before it allocates memory. The result is
// never nil; close it after an error too.
//
// Collective: all ranks, one plan.
func newHooked(d *DDP, hook compress.Hook, rest float64) (*hooked, error) {
	x := &hooked{hook: hook}
	all, err := x.makeLines(d, rest)
	lines, longest := make([]string, len(all)), int64(0)
	for i, messages := range all {
		lines[i] = fmt.Sprintf("messages of %s: %v", d.buckets[i].name, messages)
		longest = max(longest, messageBytes(messages))
	}
	if err := agree(d.team, lines, err); err != nil {
		return x, err
	}
	if x.mem, err = newMessageMemory(d.team.Group, longest); err != nil {
		return x, err
	}
	for i, l := range x.lines {
		if err := x.mem.carve(l.messages, all[i]); err != nil {
			return x, err
		}
	}
	return x, nil
}

// makeLines makes the line of each bucket. It returns the messages of each.
func (x *hooked) makeLines(d *DDP, rest float64) ([][]compress.Message, error) {
	var all [][]compress.Message
	for i, b := range d.buckets {
		codec, err := x.hook.Codec(d.hookBucket(i))
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

// hookBucket returns bucket i as a Codec gets it.
func (d *DDP) hookBucket(i int) compress.Bucket {
	p := d.plan.Buckets[i]
	h := compress.Bucket{Index: i, DType: p.DType, Elements: p.Elements, Rank: d.team.Rank(), Ranks: d.team.Size()}
	for _, j := range p.Params {
		q := d.plan.Params[j]
		h.Params = append(h.Params, compress.Param{Name: q.Name, Shape: q.Shape, Offset: q.Offset})
	}
	return h
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

func (x *hooked) close() error { return x.mem.close() }

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
		return l.d.reduceBucket(l.b, message, dist.Sum)
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
		if err := l.d.checkWeight(); err != nil {
			return err // on all ranks: the step is undone, and no residual is sent for it
		}
	}
	share, err := l.d.share(l.b.buf.DType())
	if err != nil {
		return err
	}
	l.ran = true
	if err := l.codec.Compress(round, share, l.b.buf, l.messages); err != nil {
		return fmt.Errorf("%s round %s: %w", l.b.name, strconv.Itoa(round), err)
	}
	return nil
}

// decompress makes the gradient of the sums; with sharding, this rank's part of it.
func (l *line) decompress() error {
	to, from := l.b.buf, l.messages
	if l.whole && l.d.sharded() {
		var err error
		if to, err = l.d.own(l.b, to); err != nil {
			return err
		}
		if l.owned[0], err = l.d.own(l.b, from[0]); err != nil {
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
	x := &scaled{alone: alone}
	for _, b := range d.buckets {
		x.lines = append(x.lines, &scaling{d: d, b: b, rest: rest, alone: alone})
	}
	return x
}

func (x *scaled) start(b *bucket) (dist.Work, error) {
	l := x.lines[b.index]
	if !l.alone {
		var err error
		if l.sum, err = l.d.reduceBucket(b, b.buf, b.red); err != nil {
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

func (x *scaled) close() error { return nil }

func (l *scaling) Run(*dist.Op, uint64) error {
	for _, w := range [...]dist.Work{l.b.scattered, l.sum} {
		if err := w.Wait(); err != nil {
			return err
		}
	}
	by := l.rest
	if l.alone {
		var err error
		if by, err = l.d.share(l.b.buf.DType()); err != nil {
			return err
		}
	}
	to := l.b.buf
	if l.d.sharded() {
		var err error
		if to, err = l.d.own(l.b, to); err != nil {
			return err
		}
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
