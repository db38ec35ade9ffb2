package nvshmem

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/internal/gpu/cuda"
	"github.com/symgrad/symgrad/tensor"
)

// testingAllocs returns the allocations of a call of f after a first call, which may allocate.
func testingAllocs(f func()) float64 { return testing.AllocsPerRun(20, f) }

// allocations enqueues every kind of operation, directly and through the staging area, and times
// one.
func allocations(r *rank) error {
	rt, e, err := r.started(small())
	if err != nil {
		return err
	}
	b, err := newBench(r, rt, e, int64(8*40000*r.n()))
	if err != nil {
		return err
	}
	if err := r.dev.Enter(); err != nil {
		return err
	}
	defer r.dev.Leave()
	var found []string
	for _, kind := range append(append([]dist.Kind(nil), reducing...), copying...) {
		for _, red := range []dist.RedKind{dist.RedSum, dist.RedAvg, dist.RedPreMulSum} {
			if !kind.Reduces() && red != dist.RedSum {
				continue
			}
			for _, at := range []placement{placements[0], placements[2]} {
				x := example{kind: kind, dt: tensor.F32, red: red, count: 20000, at: at}
				op, _, err := b.op(x)
				if err != nil {
					return err
				}
				var failed error
				n := testingAllocs(func() { failed = errors.Join(failed, b.e.Enqueue(op, b.stream)) })
				if failed != nil {
					return fmt.Errorf("%v: %w", x, failed)
				}
				if n != 0 {
					found = append(found, fmt.Sprintf("%v: %v", x, n))
				}
				if err := b.stream.Synchronize(); err != nil {
					return err
				}
			}
		}
	}
	if err := b.allocationsOfMessages(&found); err != nil {
		return err
	}
	if len(found) > 0 {
		return fmt.Errorf("enqueue allocates:\n%s", strings.Join(found, "\n"))
	}
	if err := b.cost(); err != nil {
		return err
	}
	return errors.Join(b.close(), e.Close(), rt.Close())
}

// allocationsOfMessages is the same for a group call.
func (b *bench) allocationsOfMessages(found *[]string) error {
	next, previous := (b.rank+1)%b.n, (b.rank+b.n-1)%b.n
	out, err := b.post(dist.KindSend, next, 0, 1000)
	if err != nil {
		return err
	}
	in, err := b.post(dist.KindRecv, previous, 1, 1000)
	if err != nil {
		return err
	}
	barrier := &dist.Op{Kind: dist.KindBarrier}
	var failed error
	n := testingAllocs(func() {
		failed = errors.Join(failed, b.e.BeginBatch(b.stream), b.e.Enqueue(out, b.stream), b.e.Enqueue(in, b.stream),
			b.e.EndBatch(b.stream), b.e.Enqueue(barrier, b.stream))
	})
	if n != 0 {
		*found = append(*found, fmt.Sprintf("a group call and a barrier: %v", n))
	}
	return errors.Join(failed, b.stream.Synchronize())
}

// cost prints the host time of one Enqueue, including NVSHMEM's.
func (b *bench) cost() error {
	op, _, err := b.op(example{kind: dist.KindAllReduce, dt: tensor.F32, count: 256, at: placements[1]})
	if err != nil {
		return err
	}
	const times = 200
	begun := time.Now()
	for range times {
		if err := b.e.Enqueue(op, b.stream); err != nil {
			return err
		}
	}
	spent := time.Since(begun) / times
	fmt.Printf("enqueue of an allreduce of 1 KiB: %v of host time\n", spent)
	return b.stream.Synchronize()
}

// graphs captures operations of every sort and runs them again and again on new data.
func graphs(r *rank) error {
	rt, e, err := r.started(small())
	if err != nil {
		return err
	}
	b, err := newBench(r, rt, e, int64(8*40000*r.n()))
	if err != nil {
		return err
	}
	for _, x := range []example{
		{kind: dist.KindAllReduce, dt: tensor.F32, count: 40000, at: placements[0]},
		{kind: dist.KindAllReduce, dt: tensor.F32, count: 40000, at: placements[2]},
		{kind: dist.KindAllReduce, dt: tensor.I16, count: 3000, at: placements[2]},
		{kind: dist.KindReduceScatter, dt: tensor.BF16, red: dist.RedAvg, count: 777, at: placements[2]},
		{kind: dist.KindAllReduce, dt: tensor.F64, red: dist.RedPreMulSum, count: 999, at: placements[0]},
		{kind: dist.KindAllGather, dt: tensor.I32, count: 20000, at: placements[2]},
		{kind: dist.KindBroadcast, dt: tensor.U8, count: 40000, root: 1, at: placements[0]},
		{kind: dist.KindGather, dt: tensor.U8, count: 500, at: placements[2]},
		{kind: dist.KindScatter, dt: tensor.U8, count: 500, at: placements[2]},
		{kind: dist.KindAllToAll, dt: tensor.F32, count: 500, at: placements[0]},
	} {
		if err := b.replay(x); err != nil {
			return fmt.Errorf("%v: %w", x, err)
		}
	}
	if err := b.replayMessages(); err != nil {
		return err
	}
	return errors.Join(b.close(), e.Close(), rt.Close())
}

// record captures the work that f queues and returns its graph.
func (b *bench) record(f func() error) (*cuda.GraphExec, error) {
	if err := b.r.dev.Enter(); err != nil {
		return nil, err
	}
	defer b.r.dev.Leave()
	if err := b.stream.BeginCapture(); err != nil {
		return nil, err
	}
	err := f()
	g, ended := b.stream.EndCapture()
	if err := errors.Join(err, ended); err != nil {
		return nil, err
	}
	x, err := g.Instantiate()
	return x, errors.Join(err, g.Close())
}

func (b *bench) replay(x example) error {
	op, m, err := b.op(x)
	if err != nil {
		return err
	}
	g, err := b.record(func() error { return b.e.Enqueue(op, b.stream) })
	if err != nil {
		return err
	}
	for round := range 3 {
		wiped := elements(x.dt, op.Dst.Len(), func(int) int { return 50 + round })
		if err := errors.Join(m.write(op.Dst, wiped), b.e.member.Agree(nil), g.Launch(b.stream), b.stream.Synchronize()); err != nil {
			return err
		}
		if err := b.compare(x, op, m); err != nil {
			return fmt.Errorf("round %d: %w", round, err)
		}
	}
	return g.Close()
}

func (b *bench) replayMessages() error {
	next, previous := (b.rank+1)%b.n, (b.rank+b.n-1)%b.n
	bytes := int(b.e.team.area.slot) + 100 // two mailboxes full
	out, err := b.post(dist.KindSend, next, 0, bytes)
	if err != nil {
		return err
	}
	in, err := b.post(dist.KindRecv, previous, 0, bytes)
	if err != nil {
		return err
	}
	if err := b.queue(true, []*dist.Op{out, in}, []int{0, 0}); err != nil { // makes the streams that the graph uses
		return err
	}
	g, err := b.record(func() error {
		return errors.Join(b.e.BeginBatch(b.stream), b.e.Enqueue(out, b.stream), b.e.Enqueue(in, b.stream), b.e.EndBatch(b.stream))
	})
	if err != nil {
		return err
	}
	for round := range 3 {
		if err := errors.Join(b.private.write(in.Dst, make([]byte, bytes)), g.Launch(b.stream), b.stream.Synchronize()); err != nil {
			return err
		}
		got, err := b.private.read(in.Dst)
		if err != nil {
			return err
		}
		if err := differ(fmt.Sprintf("messages in a graph, round %d", round), tensor.U8, got, letter(previous, b.rank, 0, bytes)); err != nil {
			return err
		}
	}
	return g.Close()
}

// deviceSource calls NVSHMEM on the device: a put to the next rank, and a sum of all by one block.
const deviceSource = `
#include <nvshmem.h>
#include <nvshmemx.h>
extern "C" __global__ void shift(int *dest) {
  nvshmem_int_p(dest, nvshmem_my_pe(), (nvshmem_my_pe() + 1) % nvshmem_n_pes());
}
extern "C" __global__ void sum(int *at) {
  at[1] = 10 + nvshmem_my_pe();
  nvshmemx_int_sum_reduce_block(NVSHMEM_TEAM_WORLD, at + 2, at + 1, 1);
}
`

// build is Link and Load.
func (e *engine) build(src cuda.Source) (*cuda.Module, func() error, error) {
	image, err := e.Link(src)
	if err != nil {
		return nil, nil, err
	}
	return e.Load(image)
}

// deviceCode runs kernels that call the library, and checks that invalid code is rejected.
func deviceCode(r *rank) error {
	rt, e, err := r.started(small())
	if err != nil {
		return err
	}
	w, err := openWindow(r, rt)
	if err != nil {
		return err
	}
	m, end, err := e.build(cuda.Source{Name: "device.cu", Text: deviceSource})
	if err != nil {
		return err
	}
	minus := elements(tensor.I32, 16, func(int) int { return -1 })
	if err := errors.Join(w.fill(w.base, minus), w.meet()); err != nil {
		return err
	}
	if err := errors.Join(w.launch(m, "shift"), w.meet(), w.launch(m, "sum"), w.meet()); err != nil {
		return err
	}
	raw, err := w.data(w.base, 64)
	if err != nil {
		return err
	}
	words := unsafe.Slice((*int32)(unsafe.Pointer(&raw[0])), 16)
	sum := 0
	for i := range r.n() {
		sum += 10 + i
	}
	if before := (r.me() + r.n() - 1) % r.n(); int(words[0]) != before || int(words[2]) != sum || words[3] != -1 {
		return fmt.Errorf("words %v, want %d by the rank before, and the sum %d", words[:4], before, sum)
	}
	if err := errors.Join(end(), m.Close()); err != nil {
		return err
	}
	if _, _, err := e.build(cuda.Source{Name: "wrong.cu", Text: deviceSource + "wrong"}); err == nil || !strings.Contains(err.Error(), "wrong.cu(11)") {
		return fmt.Errorf("text that is wrong in line 11: error %v", err)
	}
	return errors.Join(r.plainModules(rt), w.close(), e.Close(), rt.Close())
}

// launch queues one thread block of 32 threads for sum, and one thread else.
func (w *window) launch(m *cuda.Module, kernel string) error {
	f, err := m.Function(kernel)
	if err != nil {
		return err
	}
	args, err := cuda.NewArgs(1)
	if err != nil {
		return err
	}
	args.Ptr(w.base)
	block := [3]uint32{1, 1, 1}
	if kernel == "sum" {
		block[0] = 32
	}
	return f.Launch(w.s, cuda.Launch{Grid: [3]uint32{1, 1, 1}, Block: block}, args)
}

// plainModules has a module without NVSHMEM in it refused before the library sees it.
func (r *rank) plainModules(rt *Runtime) error {
	image, err := r.compiler.Compile(r.dev, cuda.Source{Name: "plain.cu", Text: `extern "C" __global__ void nothing() {}`})
	if err != nil {
		return err
	}
	m, err := r.dev.Load(image)
	if err != nil {
		return err
	}
	if err := rt.InitModule(m); !errors.Is(err, dist.ErrUnsupported) {
		return fmt.Errorf("a module without NVSHMEM: error %v, want ErrUnsupported", err)
	}
	if err := rt.InitModule(nil); !errors.Is(err, dist.ErrDevice) {
		return fmt.Errorf("no module: error %v, want ErrDevice", err)
	}
	return m.Close()
}
