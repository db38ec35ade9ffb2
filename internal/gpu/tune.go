package gpu

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/symmetric"
	"github.com/symgrad/symgrad/tensor"
)

// Tuning has the settings of Tune.
type Tuning struct {
	Kinds      []dist.Kind    // empty means allreduce, reducescatter and allgather
	DTypes     []tensor.DType // of reductions; empty means f32 and bf16
	Reductions []dist.RedOp   // empty means sum
	Smallest   int64          // bytes; 0 means 1 KiB
	Largest    int64          // bytes; 0 means 256 MiB
	Rounds     int            // operations timed together; 0 means 50, fewer where they are large
	Repeats    int            // the fastest counts; 0 means 5
	Libraries  []Library      // recorded in the table
	Keep       []Rule         // rules of the table; nil means those of the built-in one
	Report     func(Row)      // called with each row on every rank; may be nil
}

// most is about the number of bytes that one timing moves: large operations run in fewer rounds.
const most = 1 << 30

func (c Tuning) withDefaults() Tuning {
	if len(c.Kinds) == 0 {
		c.Kinds = []dist.Kind{dist.KindAllReduce, dist.KindReduceScatter, dist.KindAllGather}
	}
	if len(c.DTypes) == 0 {
		c.DTypes = []tensor.DType{tensor.F32, tensor.BF16}
	}
	if len(c.Reductions) == 0 {
		c.Reductions = []dist.RedOp{dist.Sum}
	}
	if c.Smallest == 0 {
		c.Smallest = 1 << 10
	}
	if c.Largest == 0 {
		c.Largest = 256 << 20
	}
	if c.Rounds == 0 {
		c.Rounds = 50
	}
	if c.Repeats == 0 {
		c.Repeats = 5
	}
	return c
}

// Validate reports the first wrong setting.
//
// Errors: dist.ErrInvalid.
func (c Tuning) Validate() error {
	d := c.withDefaults()
	what := ""
	switch {
	case d.Smallest < 1 || d.Smallest&(d.Smallest-1) != 0 || d.Largest&(d.Largest-1) != 0:
		what = fmt.Sprintf("sizes from %d B to %d B are not powers of two", d.Smallest, d.Largest)
	case d.Largest < d.Smallest:
		what = fmt.Sprintf("sizes from %d B down to %d B", d.Smallest, d.Largest)
	case d.Rounds < 1 || d.Repeats < 1:
		what = fmt.Sprintf("%d rounds, %d repeats", d.Rounds, d.Repeats)
	}
	for _, k := range d.Kinds {
		switch k {
		case dist.KindAllReduce, dist.KindReduce, dist.KindBroadcast, dist.KindAllGather, dist.KindReduceScatter, dist.KindAllToAll:
		default:
			what = fmt.Sprintf("%v cannot be measured", k)
		}
	}
	if what == "" {
		return nil
	}
	return fmt.Errorf("tune: %w: %s", dist.ErrInvalid, what)
}

// tuneKey is one operation to measure.
type tuneKey struct {
	kind      dist.Kind
	dtype     tensor.DType
	red       dist.RedOp
	symmetric bool
}

// keys returns the operations to measure, in an order that all ranks share.
func (c *Tuning) keys(symmetricToo bool) []tuneKey {
	var keys []tuneKey
	for _, kind := range c.Kinds {
		dtypes, reds := c.DTypes, c.Reductions
		if !kind.Reduces() {
			dtypes, reds = []tensor.DType{tensor.U8}, []dist.RedOp{{}}
		}
		for _, dt := range dtypes {
			for _, red := range reds {
				keys = append(keys, tuneKey{kind, dt, red, false})
				if symmetricToo {
					keys = append(keys, tuneKey{kind, dt, red, true})
				}
			}
		}
	}
	return keys
}

// Tune measures every operation and size with every capable engine, on the device's clock. It
// returns a table of the slowest rank's times.
//
// Collective: all ranks of t, same settings; no other use of the group during the call. Returns:
// the same table on all ranks. Errors: ErrInvalid for wrong settings; ErrMemory of
// internal/gpu/cuda, or symmetric.ErrNoSpace, for sizes that do not fit; the error of a broken
// group.
func Tune(t *Transport, cfg Tuning) (*Table, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	cfg = cfg.withDefaults()
	b, err := newBench(t, &cfg)
	if err != nil {
		return nil, fmt.Errorf("tune: %w", err)
	}
	table, err := b.table()
	if err = errors.Join(err, b.close()); err != nil {
		return nil, fmt.Errorf("tune: %w", err)
	}
	return table, nil
}

// bench has the memory and the stream of one Tune.
type bench struct {
	t       *Transport
	cfg     *Tuning
	s       *Stream
	heap    symmetric.Heap // nil if the group has no heaps
	regions [2]symmetric.Region
	private [2]tensor.Buffer
	plain   [2]uintptr
	seq     uint64
}

func newBench(t *Transport, cfg *Tuning) (*bench, error) {
	b := &bench{t: t, cfg: cfg}
	err := t.member.Agree(b.allocate())
	if err != nil {
		return nil, errors.Join(err, b.close())
	}
	b.heap, err = t.Heap(2 * (cfg.Largest + symmetric.Alignment))
	if errors.Is(err, dist.ErrUnsupported) {
		return b, nil
	}
	for i := range b.regions {
		if err == nil {
			b.regions[i], err = b.heap.Alloc(cfg.Largest)
		}
	}
	if err != nil {
		return nil, errors.Join(err, b.close())
	}
	return b, nil
}

func (b *bench) allocate() error {
	v := b.t.member.Device
	s, err := b.t.NewStream()
	if err != nil {
		return err
	}
	b.s, _ = s.(*Stream)
	for i := range b.plain {
		p, err := v.Alloc(b.cfg.Largest)
		if err != nil {
			return err
		}
		b.plain[i] = p
		if err := v.Fill(p, 0, b.cfg.Largest); err != nil {
			return err
		}
		if b.private[i], err = bytesAt(p, b.cfg.Largest, b.t.on); err != nil {
			return err
		}
	}
	return nil
}

func (b *bench) close() error {
	var errs []error
	if b.s != nil {
		errs = append(errs, b.s.Close())
	}
	if b.heap != nil {
		errs = append(errs, b.heap.Close())
	}
	for _, p := range b.plain {
		errs = append(errs, b.t.member.Device.Free(p))
	}
	return errors.Join(errs...)
}

func (b *bench) table() (*Table, error) {
	rules := b.cfg.Keep
	if rules == nil {
		known, err := BuiltinTable(b.t.member.machine())
		if err != nil {
			return nil, err
		}
		rules = known.Rules
	}
	v := b.t.member.Device
	table := &Table{
		Version: tableVersion, Machine: v.Name(), Driver: v.Driver().Version(), Libraries: slices.Clone(b.cfg.Libraries), Rules: rules,
	}
	for _, k := range b.cfg.keys(b.heap != nil) {
		for bytes := b.cfg.Smallest; bytes > 0 && bytes <= b.cfg.Largest; bytes *= 2 {
			row, err := b.row(k, bytes)
			if err != nil {
				return nil, fmt.Errorf("%v of %v, %d B: %w", k.kind, k.dtype, bytes, err)
			}
			if len(row.Timings) == 0 {
				continue
			}
			table.Rows = append(table.Rows, row)
			if b.cfg.Report != nil {
				b.cfg.Report(row)
			}
		}
	}
	return table, table.Validate()
}

// row measures one operation with every engine that can do it.
func (b *bench) row(k tuneKey, bytes int64) (Row, error) {
	op, ok, err := b.op(k, bytes)
	row := Row{Kind: k.kind.String(), Reduction: Class(&op), Symmetric: k.symmetric, Ranks: b.t.member.Size, Bytes: bytes}
	if n := b.t.member.HostCount(); n > 1 {
		row.Hosts = n
	}
	if k.kind.Reduces() {
		row.DType = k.dtype.String()
	}
	if err != nil || !ok {
		return row, err
	}
	for i, e := range b.t.engines.list {
		if !measures(e, &op) {
			continue
		}
		us, err := b.measure(i, op)
		if err != nil {
			return row, fmt.Errorf("%s: %w", e.Name(), err)
		}
		row.Timings = append(row.Timings, Timing{Engine: e.Name(), Microseconds: us})
		b.forget(i)
	}
	return row, nil
}

// forget drops the cached launches of engine i, so that the many operations of Tune all get cached.
func (b *bench) forget(i int) {
	if k := b.t.engines.keepers[i]; k != nil {
		b.t.mu.Lock()
		defer b.t.mu.Unlock()
		k.Forget()
	}
}

// measures reports whether e has a time of its own for op: it can do it, and by its own algorithm.
func measures(e Engine, op *dist.Op) bool {
	n, ok := e.(Native)
	return e.Can(op) == nil && (!ok || n.Native(op.Kind))
}

// op returns the operation k on a vector of bytes bytes; false if the vector is too small to divide
// among the ranks.
func (b *bench) op(k tuneKey, bytes int64) (dist.Op, bool, error) {
	p := &b.t.member
	op := dist.Op{Kind: k.kind, Red: k.red, Symmetric: k.symmetric}
	size := int64(k.dtype.Size())
	whole, part := bytes, bytes/int64(p.Size)/size*size
	dst, src := whole, whole
	op.Count = int(whole / size)
	switch k.kind {
	case dist.KindAllGather:
		dst, src, op.Count = part*int64(p.Size), part, int(part/size)
	case dist.KindReduceScatter:
		dst, src, op.Count = part, part*int64(p.Size), int(part/size)
	case dist.KindAllToAll:
		dst, src, op.Count = part*int64(p.Size), part*int64(p.Size), int(part/size)
	}
	if op.Count == 0 {
		return op, false, nil
	}
	var err error
	if k.kind != dist.KindReduce || p.Rank == op.Root {
		op.Dst, err = b.buffer(0, k, dst)
	}
	if err == nil && (k.kind != dist.KindBroadcast || p.Rank == op.Root) {
		op.Src, err = b.buffer(1, k, src)
	}
	if k.kind == dist.KindAllReduce {
		op.Src = op.Dst // in place, like sums of gradients
	}
	return op, true, err
}

func (b *bench) buffer(i int, k tuneKey, bytes int64) (tensor.Buffer, error) {
	whole := b.private[i]
	if k.symmetric {
		whole = b.regions[i].Local()
	}
	return tensor.FromPointer(whole.Pointer(), int(bytes/int64(k.dtype.Size())), k.dtype, whole.Device())
}

// measure returns the time of op by engine i on the slowest rank. The least of the repeats counts,
// since disturbances only add time.
func (b *bench) measure(i int, op dist.Op) (microseconds float64, err error) {
	rounds := int(max(3, min(int64(b.cfg.Rounds), most/max(op.Bytes(), 1))))
	least := math.Inf(1)
	for repeat := range b.cfg.Repeats + 1 {
		if err := finish(b.t.member.Control.Blocking().Barrier()); err != nil {
			return 0, b.t.ledger.settle(err)
		}
		ms, err := TimeOp(b.s, func() error {
			for range rounds {
				if err := b.start(i, op); err != nil {
					return err
				}
			}
			return nil
		})
		slowest, e := b.slowest(ms, err)
		if e != nil {
			return 0, e
		}
		if repeat > 0 { // the first warms up
			least = min(least, slowest*1000/float64(rounds))
		}
	}
	return least, nil
}

// start queues op by engine i.
func (b *bench) start(i int, op dist.Op) error {
	t := b.t
	t.mu.Lock()
	defer t.mu.Unlock()
	b.seq++
	op.Seq = b.seq
	b.s.mu.Lock()
	defer b.s.mu.Unlock()
	e, _ := b.s.push()
	e.op, e.t = op, t
	err := t.ledger.broken()
	if err == nil && t.streams.last != b.s {
		err = t.streams.follow(b.s)
	}
	if err == nil {
		err = t.enqueue(e, &e.op, route{int8(i), plain}, b.s)
	}
	if err != nil && t.ledger.broken() != nil {
		err = t.ledger.broken()
		e.err = t.opError(&e.op, err)
	}
	return err
}

// slowest returns the largest of the ranks' times, or an error if a rank has one.
func (b *bench) slowest(ms float64, err error) (float64, error) {
	if err := b.t.member.Agree(err); err != nil {
		return 0, err
	}
	all, err := b.t.member.Exchange(binary.LittleEndian.AppendUint64(nil, math.Float64bits(ms)))
	if err != nil {
		return 0, b.t.ledger.settle(err)
	}
	for _, x := range all {
		ms = max(ms, math.Float64frombits(binary.LittleEndian.Uint64(x)))
	}
	return ms, nil
}
