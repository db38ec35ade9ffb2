package exchange

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/internal/tool/cli"
	"github.com/symgrad/symgrad/symmetric"
	"github.com/symgrad/symgrad/tensor"
)

// Values does collectives on small host values, wherever the world's buffers are. Between GPUs
// the values pass through symmetric device memory, which grows with their size.
type Values struct {
	w        *dist.World
	heap     symmetric.Heap   // nil on the host, and before the first exchange
	room     int64            // bytes of each of src and dst
	src, dst symmetric.Region // of one collective
}

// leastRoom is the least size of the symmetric memory, large enough for the frequent exchanges of a
// run.
const leastRoom = 64 << 10

// New returns the exchange of values between the ranks of w.
//
// Owns: the caller calls Close before it closes w.
func New(w *dist.World) *Values { return &Values{w: w} }

// World returns the ranks.
func (k *Values) World() *dist.World { return k.w }

// Close frees the memory. Idempotent.
func (k *Values) Close() error {
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
func (k *Values) do(name string, dst, src tensor.Buffer, op func(g *dist.Group, dst, src tensor.Buffer) (dist.Work, error)) error {
	g := k.w.With(dist.Hints{Name: name})
	switch {
	case k.w.Device() == tensor.Host:
		return Done(op(g, dst, src))
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
	if err := Done(op(g, to, from)); err != nil {
		return err
	}
	return k.dst.Get(dst, me, 0)
}

// grow makes room for the given bytes.
//
// Collective: all ranks, same bytes.
func (k *Values) grow(bytes int64) error {
	if k.heap != nil && bytes <= k.room {
		return nil
	}
	if err := k.Close(); err != nil {
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

// Reduce sets v to the reduction of v over all ranks, in rank order on the host.
//
// Collective: all ranks, one length.
func Reduce[T tensor.Element](k *Values, name string, v []T, red dist.RedOp) error {
	return k.do(name, tensor.Of(v), tensor.Of(v), func(g *dist.Group, dst, src tensor.Buffer) (dist.Work, error) {
		return g.AllReduce(dst, src, red)
	})
}

// Sum sets v to the sum of v over all ranks.
//
// Collective: all ranks, one length.
func Sum[T tensor.Element](k *Values, name string, v []T) error {
	return Reduce(k, name, v, dist.Sum)
}

// Every returns mine of all ranks, by rank.
//
// Collective: all ranks, one length.
func Every[T tensor.Element](k *Values, name string, mine []T) ([]T, error) {
	all := make([]T, len(mine)*k.w.Size())
	return all, k.do(name, tensor.Of(all), tensor.Of(mine), func(g *dist.Group, dst, src tensor.Buffer) (dist.Work, error) {
		return g.AllGather(dst, src)
	})
}

// FromFirst sets v to rank 0's v.
//
// Collective: all ranks, one length.
func FromFirst[T tensor.Element](k *Values, name string, v []T) error {
	return k.do(name, tensor.Of(v), tensor.Of(v), func(g *dist.Group, dst, src tensor.Buffer) (dist.Work, error) {
		return g.Broadcast(dst, src, 0)
	})
}

// FromRank0 returns the answer of ask on rank 0.
//
// Collective: all ranks. Errors: ask's, on all ranks.
func FromRank0[T any](k *Values, name string, ask func() (T, error)) (answer T, err error) {
	var text []byte
	reply := struct {
		Answer T
		Error  string
		Usage  bool
	}{}
	if k.w.Rank() == 0 {
		if reply.Answer, err = ask(); err != nil {
			reply.Error, reply.Usage = err.Error(), errors.Is(err, cli.ErrUsage)
		}
		var coded error
		text, coded = json.Marshal(reply)
		err = errors.Join(err, coded)
	}
	length := []int64{int64(len(text))}
	if sent := FromFirst(k, name, length); sent != nil {
		return answer, errors.Join(err, sent)
	}
	text = append(text, make([]byte, int(length[0])-len(text))...)
	if sent := FromFirst(k, name, text); sent != nil || err != nil {
		return reply.Answer, errors.Join(err, sent)
	}
	if err := json.Unmarshal(text, &reply); err != nil {
		return reply.Answer, fmt.Errorf("%s, from rank 0: %w", name, err)
	}
	switch {
	case reply.Error == "":
		return reply.Answer, nil
	case reply.Usage:
		return reply.Answer, cli.Usage("%s", reply.Error)
	}
	return reply.Answer, fmt.Errorf("rank 0: %s", reply.Error)
}
