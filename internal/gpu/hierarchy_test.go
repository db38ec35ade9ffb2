package gpu

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/internal/gpu/cuda"
	"github.com/symgrad/symgrad/tensor"
)

// hostEngine is an engine that does operations on its control group, in memory of the host.
type hostEngine struct {
	column
	g     *dist.Group
	kinds []string // that it has done
}

func (e *hostEngine) Enqueue(op *dist.Op, _ *cuda.Stream) error {
	e.kinds = append(e.kinds, op.Kind.String())
	g := e.g.Blocking()
	switch op.Kind {
	case dist.KindAllReduce:
		return finish(g.AllReduce(op.Dst, op.Src, op.Red))
	case dist.KindReduceScatter:
		return finish(g.ReduceScatter(op.Dst, op.Src, op.Red))
	case dist.KindAllGather:
		return finish(g.AllGather(op.Dst, op.Src))
	case dist.KindBroadcast:
		return finish(g.Broadcast(op.Dst, op.Src, op.Root))
	}
	return fmt.Errorf("%w: %v", dist.ErrUnsupported, op.Kind)
}

// onHierarchy runs body as every rank of where, with the engine over hostEngines.
func onHierarchy(t *testing.T, where []int, body func(control *dist.Group, h *hierarchy) error) {
	t.Helper()
	onHosts(t, where, func(control *dist.Group) error {
		p := MemberOf(control, nil)
		build := func(p *Member) ([]Engine, error) {
			name := "near"
			if p.HostCount() > 1 {
				name = "across"
			}
			return []Engine{&hostEngine{column: column{name: name, can: notMessages}, g: p.Control}}, nil
		}
		h, err := newHierarchy(DispatchConfig{}, p, build, tensor.Of(make([]uint32, 1)))
		if err != nil {
			return err
		}
		return errors.Join(body(control, h), h.Close())
	})
}

// Sums are right for counts that do and do not divide by the ranks of a host, in place or not, for
// ranks of a host that follow each other and for others.
func TestHierarchyAddsAllRanks(t *testing.T) {
	for _, where := range [][]int{{0, 0, 1, 1}, {0, 1, 1, 0}, {0, 1, 2, 0, 1, 2}, {0, 0, 0, 1, 1, 1}} {
		onHierarchy(t, where, func(control *dist.Group, h *hierarchy) error {
			for _, count := range []int{1, 2, 3, 5, 6, 301} {
				for _, inPlace := range []bool{false, true} {
					src := make([]float32, count)
					for i := range src {
						src[i] = float32((control.Rank() + 1) * (i + 1))
					}
					dst := make([]float32, count)
					op := dist.Op{Kind: dist.KindAllReduce, Red: dist.Sum, Count: count, Src: tensor.Of(src), Dst: tensor.Of(dst)}
					if inPlace {
						dst, op.Dst = src, op.Src
					}
					if err := errors.Join(h.Can(&op), h.Enqueue(&op, nil)); err != nil {
						return err
					}
					n := control.Size()
					for i, v := range dst {
						if want := float32(n * (n + 1) / 2 * (i + 1)); v != want {
							return fmt.Errorf("%v, count %d, in place %v: element %d is %v, want %v", where, count, inPlace, i, v, want)
						}
					}
				}
			}
			return nil
		})
	}
}

// Averages are of all ranks, and only hosts exchange less than the whole vector.
func TestHierarchyAveragesAndDividesTheWork(t *testing.T) {
	onHierarchy(t, []int{0, 0, 1, 1}, func(control *dist.Group, h *hierarchy) error {
		data := []float64{float64(control.Rank()), 8}
		b := tensor.Of(data)
		op := dist.Op{Kind: dist.KindAllReduce, Red: dist.Avg, Count: 2, Src: b, Dst: b}
		if err := errors.Join(h.Can(&op), h.Enqueue(&op, nil)); err != nil {
			return err
		}
		if data[0] != 1.5 || data[1] != 8 {
			return fmt.Errorf("average %v", data)
		}
		if e := h.across.engines[0].(*hostEngine); !slices.Equal(e.kinds, []string{"allreduce"}) || h.probe[2].Count != 1 {
			return fmt.Errorf("between hosts: %v of %d elements", e.kinds, h.probe[2].Count)
		}
		if e := h.near.engines[0].(*hostEngine); !slices.Equal(e.kinds, []string{"reducescatter", "allgather"}) {
			return fmt.Errorf("inside: %v", e.kinds)
		}
		return nil
	})
}

func TestHierarchyRefusesOthersAndUnequalHosts(t *testing.T) {
	onHierarchy(t, []int{0, 0, 1, 1}, func(_ *dist.Group, h *hierarchy) error {
		b, whole := f32s(4), tensor.Of(make([]uint8, 4))
		_, split := h.Split(nil)
		return errors.Join(want(h.Can(&dist.Op{Kind: dist.KindBroadcast, Count: 4, Src: b, Dst: b}), dist.ErrUnsupported, "broadcast"),
			want(h.Can(&dist.Op{Kind: dist.KindAllReduce, Red: dist.Avg, Count: 4, Src: whole, Dst: whole}), dist.ErrUnsupported, "round"),
			want(split, dist.ErrUnsupported))
	})
	for text, want := range map[string]bool{"": false, "00": false, "01": false, "0011": true, "0101": true, "001": false, "001122": true, "000111": true} {
		var hosts []int
		for _, c := range strings.Split(text, "") {
			hosts = append(hosts, int(c[0]-'0'))
		}
		if slices.Max(append(hosts, 0)) == 0 {
			hosts = nil
		}
		if got := (&Member{Size: len(text), Hosts: hosts}).hierarchical(); got != want {
			t.Errorf("hosts %q: hierarchical %v, want %v", text, got, want)
		}
	}
}

// Groups over hosts take no row or rule of one host. Without a row, large allreduces go to hier.
func TestChoiceOverHosts(t *testing.T) {
	row := func(hosts int, engine string) Row {
		return Row{
			Kind: "allreduce", DType: "f32", Reduction: "sum", Ranks: 4, Hosts: hosts, Bytes: 1 << 10,
			Timings: []Timing{{engine, 1}},
		}
	}
	table := func(rows ...Row) *Table {
		return &Table{Version: tableVersion, Rows: rows, Rules: []Rule{{Engines: []string{"ll"}}}}
	}
	for name, c := range map[string]struct {
		where        []int
		table        *Table
		small, large string
	}{
		"no row":       {[]int{0, 0, 1, 1}, table(), "nccl", Hierarchical},
		"row of one":   {[]int{0, 0, 1, 1}, table(row(0, "ll")), "nccl", Hierarchical},
		"row of two":   {[]int{0, 0, 1, 1}, table(row(2, Hierarchical)), Hierarchical, Hierarchical},
		"row of three": {[]int{0, 0, 1, 1}, table(row(3, "ll")), "nccl", Hierarchical},
	} {
		if err := c.table.Validate(); err != nil {
			t.Fatal(err)
		}
		onHosts(t, c.where, func(control *dist.Group) error {
			engines := []Engine{&batching{column{"nccl", notMessages}}, &column{"ll", sumsOfFloats}, &column{Hierarchical, sumsOfFloats}}
			k, err := newDispatcher(DispatchConfig{Table: c.table}, MemberOf(control, nil), engines, true, tensor.Of(make([]uint32, 1)))
			if err != nil {
				return err
			}
			if err := errors.Join(k.picks(allReduceOp(1<<10), c.small, plain), k.picks(allReduceOp(1<<20), c.large, plain)); err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
			return nil
		})
	}
}
