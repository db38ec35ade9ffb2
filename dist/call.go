package dist

import (
	"fmt"
	"slices"
	"strings"

	"github.com/symgrad/symgrad/tensor"
)

// Call is a collective as a value, for programs that read its name from input, as
// collective_on_buffer of NVSHMEM4Py does.
type Call struct {
	Collective string        // one of CallNames
	Dst, Src   tensor.Buffer // as for the operation; none for barrier and sync
	DType      tensor.DType  // the element type of both views (tensor.Buffer.As); Invalid means the buffers' own
	Red        RedOp         // of allreduce, reduce and reducescatter; the zero value is Sum
	Root       int           // of broadcast, reduce, gather and scatter
	Timing     bool          // measure it
}

// callNames pairs the names of Call.Collective with their kinds. NVSHMEM's names are included if
// they mean the same; its reduce, whose result is on every rank, is allreduce here.
var callNames = []struct {
	name string
	kind Kind
}{
	{"allreduce", KindAllReduce},
	{"reduce", KindReduce},
	{"broadcast", KindBroadcast},
	{"allgather", KindAllGather},
	{"fcollect", KindAllGather},
	{"reducescatter", KindReduceScatter},
	{"alltoall", KindAllToAll},
	{"gather", KindGather},
	{"scatter", KindScatter},
	{"barrier", KindBarrier},
	{"sync", KindSync},
}

// CallNames returns the names that Call.Collective may have.
func CallNames() []string {
	names := make([]string, len(callNames))
	for i := range callNames {
		names[i] = callNames[i].name
	}
	return names
}

// Run runs the collective that c names and returns when it is done.
//
// Collective: all ranks, same order. Returns: 0, or with c.Timing its milliseconds (Work.Elapsed).
// Errors: ErrInvalid for an unknown name; ErrDType for buffers that are not whole elements of
// c.DType; those of the operation.
func (g *Group) Run(c Call) (milliseconds float64, err error) {
	i := slices.IndexFunc(callNames, func(n struct {
		name string
		kind Kind
	},
	) bool {
		return n.name == c.Collective
	})
	if i < 0 {
		return 0, fmt.Errorf("rank %d/%d: %w: unknown collective %q: use one of %s", g.Rank(), g.Size(), ErrInvalid, c.Collective,
			strings.Join(CallNames(), ", "))
	}
	if c.DType.Valid() {
		for _, b := range []*tensor.Buffer{&c.Dst, &c.Src} {
			if b.IsZero() {
				continue
			}
			if *b, err = b.As(c.DType); err != nil {
				return 0, fmt.Errorf("%s rank %d/%d: %w: %w", c.Collective, g.Rank(), g.Size(), ErrDType, err)
			}
		}
	}
	if c.Timing {
		g = g.Timed()
	}
	var red *RedOp
	if callNames[i].kind.Reduces() {
		red = &c.Red
	}
	w, err := g.do(callNames[i].kind, c.Dst, c.Src, red, c.Root)
	if err != nil {
		return 0, err
	}
	if !c.Timing {
		return 0, w.Wait()
	}
	d, err := w.Elapsed()
	return float64(d) / 1e6, err
}
