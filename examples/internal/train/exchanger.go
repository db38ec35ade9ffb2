package train

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/symmetric"
	"github.com/symgrad/symgrad/tensor"
)

// exchanger does collectives on small host values, wherever the world's buffers are. Between GPUs
// the values pass through symmetric device memory, which grows with their size.
type exchanger struct {
	w        *dist.World
	heap     symmetric.Heap   // nil on the host, and before the first exchange
	room     int64            // bytes of each of src and dst
	src, dst symmetric.Region // of one collective
}

// leastRoom is the least size of the symmetric memory, large enough for the frequent exchanges of a
// run.
const leastRoom = 64 << 10

func newExchanger(w *dist.World) *exchanger { return &exchanger{w: w} }

// close frees the memory. Idempotent.
func (k *exchanger) close() error {
	h := k.heap
	k.heap, k.room = nil, 0
	if h == nil {
		return nil
	}
	return h.Close()
}

// do runs the collective op from src to dst. Both are host memory and may be equal.
//
// Collective: all ranks, the same lengths. Returns: when dst has the result.
func (k *exchanger) do(name string, dst, src tensor.Buffer, op func(g *dist.Group, dst, src tensor.Buffer) (dist.Work, error)) error {
	g := k.w.With(dist.Hints{Name: name})
	switch {
	case k.w.Device() == tensor.Host:
		return done(op(g, dst, src))
	case k.w.Size() == 1: // every collective is then a copy
		copy(dst.Raw(), src.Raw())
		return nil
	case dst.Bytes() == 0:
		return nil
	}
	if err := k.grow(max(dst.Bytes(), src.Bytes())); err != nil {
		return fmt.Errorf("%s: memory on the GPU: %w", name, err)
	}
	me := k.w.Rank()
	from, err := typed(k.src.Local(), src)
	if err != nil {
		return err
	}
	to, err := typed(k.dst.Local(), dst)
	if err != nil {
		return err
	}
	if err := k.src.Put(me, 0, src); err != nil {
		return err
	}
	if err := k.heap.Quiet(); err != nil {
		return err
	}
	if err := done(op(g, to, from)); err != nil {
		return err
	}
	return k.dst.Get(dst, me, 0)
}

// grow makes room for the given bytes.
//
// Collective: all ranks, same bytes.
func (k *exchanger) grow(bytes int64) error {
	if k.heap != nil && bytes <= k.room {
		return nil
	}
	if err := k.close(); err != nil {
		return err
	}
	room := max(leastRoom, 2*bytes)
	heap, err := k.w.Heap(2 * (room + symmetric.Alignment))
	if err != nil {
		return err
	}
	k.heap = heap
	if k.src, err = heap.Alloc(room); err != nil {
		return err
	}
	if k.dst, err = heap.Alloc(room); err != nil {
		return err
	}
	k.room = room
	return nil
}

// typed returns the first part of b with the length and dtype of like.
func typed(b, like tensor.Buffer) (tensor.Buffer, error) {
	return tensor.FromPointer(b.Pointer(), like.Len(), like.DType(), b.Device())
}

// reduce sets v to the reduction of v over all ranks, in rank order on the host.
//
// Collective: all ranks, one length.
func reduce[T tensor.Element](k *exchanger, name string, v []T, red dist.RedOp) error {
	return k.do(name, tensor.Of(v), tensor.Of(v), func(g *dist.Group, dst, src tensor.Buffer) (dist.Work, error) {
		return g.AllReduce(dst, src, red)
	})
}

// sum sets v to the sum of v over all ranks.
//
// Collective: all ranks, one length.
func sum[T tensor.Element](k *exchanger, name string, v []T) error {
	return reduce(k, name, v, dist.Sum)
}

// every returns mine of all ranks, by rank.
//
// Collective: all ranks, one length.
func every[T tensor.Element](k *exchanger, name string, mine []T) ([]T, error) {
	all := make([]T, len(mine)*k.w.Size())
	return all, k.do(name, tensor.Of(all), tensor.Of(mine), func(g *dist.Group, dst, src tensor.Buffer) (dist.Work, error) {
		return g.AllGather(dst, src)
	})
}

// fromFirst sets v to rank 0's v.
//
// Collective: all ranks, one length.
func fromFirst[T tensor.Element](k *exchanger, name string, v []T) error {
	return k.do(name, tensor.Of(v), tensor.Of(v), func(g *dist.Group, dst, src tensor.Buffer) (dist.Work, error) {
		return g.Broadcast(dst, src, 0)
	})
}

// fromRank0 returns the answer of ask on rank 0.
//
// Collective: all ranks. Errors: ask's, on all ranks.
func fromRank0[T any](k *exchanger, name string, ask func() (T, error)) (answer T, err error) {
	var text []byte
	reply := struct {
		Answer T
		Error  string
		Usage  bool
	}{}
	if k.w.Rank() == 0 {
		if reply.Answer, err = ask(); err != nil {
			reply.Error, reply.Usage = err.Error(), errors.Is(err, ErrUsage)
		}
		var coded error
		text, coded = json.Marshal(reply)
		err = errors.Join(err, coded)
	}
	length := []int64{int64(len(text))}
	if sent := fromFirst(k, name, length); sent != nil {
		return answer, errors.Join(err, sent)
	}
	text = append(text, make([]byte, int(length[0])-len(text))...)
	if sent := fromFirst(k, name, text); sent != nil || err != nil {
		return reply.Answer, errors.Join(err, sent)
	}
	if err := json.Unmarshal(text, &reply); err != nil {
		return reply.Answer, fmt.Errorf("%s, from rank 0: %w", name, err)
	}
	switch {
	case reply.Error == "":
		return reply.Answer, nil
	case reply.Usage:
		return reply.Answer, Usage("%s", reply.Error)
	}
	return reply.Answer, fmt.Errorf("rank 0: %s", reply.Error)
}
