package direct

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/internal/gpu/cuda"
	"github.com/symgrad/symgrad/tensor"
)

// sweepPath is the output file of TestSweep, which is skipped without it.
var sweepPath = flag.String("sweep", "", "measure all engines in all shapes on 2 and 4 GPUs; write `file`.2.json and .4.json, and the fastest to file.2.shapes.json and .4.shapes.json")

var sweepEngines = flag.String("sweep.engines", "", "sweep only these `names`, as ll,tiles")

var sweepKinds = flag.String("sweep.kinds", "allreduce,reducescatter,allgather", "sweep these `operations`")

var sweepLeast = flag.Int64("sweep.least", 1<<10, "smallest `bytes` of the sweep")

var sweepMost = flag.Int64("sweep.most", 256<<20, "largest `bytes` of the sweep")

// Variables that hand the flags to the ranks.
const (
	sweepVar     = "SYMGRAD_TEST_SWEEP"
	sweepSizeVar = "SYMGRAD_TEST_SWEEP_SIZES"
	sweepWaysVar = "SYMGRAD_TEST_SWEEP_ENGINES"
	sweepKindVar = "SYMGRAD_TEST_SWEEP_KINDS"
)

// measured is one line of the result: the mean of operations that follow each other in graphs, on
// the slowest rank.
type measured struct {
	Ranks     int     `json:"ranks"`
	Kind      string  `json:"kind"`
	Bytes     int64   `json:"bytes"` // of the whole vector
	Engine    string  `json:"engine"`
	Blocks    int     `json:"blocks"`
	Threads   int     `json:"threads"`
	Tile      int     `json:"tile,omitempty"`
	Symmetric bool    `json:"symmetric"`
	Micros    float64 `json:"us"`
}

func (m *measured) shape() Shape { return Shape{Blocks: m.Blocks, Threads: m.Threads, Tile: m.Tile} }

// TestSweep measures, when it is asked to: go test -run Sweep -sweep out.
func TestSweep(t *testing.T) {
	if *sweepPath == "" {
		t.Skip("no -sweep file")
	}
	for _, n := range []int{2, 4} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			asProcesses(t, n, "sweep")
			text, err := os.ReadFile(fmt.Sprintf("%s.%d.json", *sweepPath, n))
			if err != nil {
				t.Fatal(err)
			}
			var all []measured
			if err := json.Unmarshal(text, &all); err != nil || len(all) == 0 {
				t.Fatalf("%d results, error %v", len(all), err)
			}
		})
	}
}

// sweepEnvironment hands the flags to a rank.
func sweepEnvironment() []string {
	return []string{
		sweepVar + "=" + *sweepPath, fmt.Sprintf("%s=%d %d", sweepSizeVar, *sweepLeast, *sweepMost), sweepWaysVar + "=" + *sweepEngines, sweepKindVar + "=" + *sweepKinds,
	}
}

// listed reports whether name is in the list that a variable has; the empty list has all.
func listed(variable, name string) bool {
	list := os.Getenv(variable)
	return list == "" || slices.Contains(strings.Split(list, ","), name)
}

// sweep measures f32 sums in place, and the two operations they consist of, in the slab.
func sweep(r *rank) error {
	var all []measured
	var rules []Rule
	var least, most int64
	if _, err := fmt.Sscan(os.Getenv(sweepSizeVar), &least, &most); err != nil {
		return err
	}
	for _, kind := range []dist.Kind{dist.KindAllReduce, dist.KindReduceScatter, dist.KindAllGather} {
		for bytes := least; bytes <= most && listed(sweepKindVar, kind.String()); bytes *= 2 {
			for w, e := range r.engines {
				if !e.Native(kind) || !listed(sweepWaysVar, e.Name()) || engineKind(w) == short && bytes > 1<<20 || engineKind(w) == oneshot && bytes > 64<<20 {
					continue
				}
				found, err := r.shapesOf(e, kind, bytes, &all)
				if err != nil {
					return err
				}
				rules = append(rules, Rule{e.Name(), kind, r.Size, bytes, found.shape()})
				if r.Rank == 0 {
					fmt.Printf("%d ranks %-14v %10d B %-14s %7.2f us %v\n", r.Size, kind, bytes, e.Name(), found.Micros, found.shape())
				}
			}
		}
	}
	if r.Rank != 0 {
		return nil
	}
	text, err := json.MarshalIndent(all, "", " ")
	if err != nil {
		return err
	}
	path := os.Getenv(sweepVar)
	return errors.Join(
		os.WriteFile(fmt.Sprintf("%s.%d.json", path, r.Size), text, 0o644),
		os.WriteFile(fmt.Sprintf("%s.%d.shapes.json", path, r.Size), EncodeRules(rules), 0o644))
}

// shapesOf measures one operation in all shapes that make sense for its size, and gives the
// fastest. Of a small one it gives the one with the fewest threads of those that are a hundredth
// slower at most: they do not differ by more than noise.
func (r *rank) shapesOf(e Tunable, kind dist.Kind, bytes int64, all *[]measured) (measured, error) {
	op := r.swept(kind, bytes)
	best := measured{Micros: math.Inf(1)}
	first := len(*all)
	for _, s := range e.Shapes() {
		if bytes <= 32<<10 && s.Blocks > 32 || bytes >= 4<<20 && (s.Blocks < 16 || s.Tile != 0 && s.Tile < 1024) || bytes >= 256<<10 && s.Threads < 256 {
			continue
		}
		if err := e.Force(s); err != nil {
			return best, err
		}
		us, err := r.time(e, &op, iterations(bytes))
		if err != nil {
			return best, err
		}
		m := measured{r.Size, kind.String(), bytes, e.Name(), s.Blocks, s.Threads, s.Tile, true, us}
		*all = append(*all, m)
		if us < best.Micros {
			best = m
		}
	}
	least := best.Micros
	for _, m := range (*all)[first:] {
		if bytes < 4<<20 && m.Micros <= 1.01*least && m.Blocks*m.Threads < best.Blocks*best.Threads {
			best = m
		}
	}
	return best, e.Force(Shape{})
}

// iterations is how many operations of a size a loop has.
func iterations(bytes int64) int { return int(max(10, min(200, 64<<20/bytes))) }

// swept is the operation in place, with its buffer at the beginning of the slab.
func (r *rank) swept(kind dist.Kind, bytes int64) dist.Op {
	n := int(bytes / 4)
	whole := deviceBuffer(r.heap.Base[r.Rank], n, tensor.F32, r)
	own := deviceBuffer(r.heap.Base[r.Rank]+uintptr(r.Rank*(n/r.Size)*4), n/r.Size, tensor.F32, r)
	switch kind {
	case dist.KindReduceScatter:
		return dist.Op{Kind: kind, Count: n / r.Size, Src: whole, Dst: own, Symmetric: true}
	case dist.KindAllGather:
		return dist.Op{Kind: kind, Count: n / r.Size, Src: own, Dst: whole, Symmetric: true}
	}
	return dist.Op{Kind: kind, Count: n, Src: whole, Dst: whole, Symmetric: true}
}

// mostSwept is how many operations a graph of the sweep has.
const mostSwept = 20

// time is the microseconds of one of about count operations, in graphs, so that the host has no
// part in it, on the slowest rank.
func (r *rank) time(e Tunable, op *dist.Op, count int) (float64, error) {
	var events [2]*cuda.Event
	for i := range events {
		var err error
		if events[i], err = r.Device.NewTimer(); err != nil {
			return 0, err
		}
	}
	each := min(count, mostSwept)
	count = count / each * each
	g, err := r.s.Capture(func() (failed error) {
		for range each {
			queue(e, op, r.s, &failed)
		}
		return failed
	})
	if err != nil {
		return 0, err
	}
	x, err := g.Instantiate()
	if err = errors.Join(err, g.Close()); err != nil {
		return 0, err
	}
	if err := errors.Join(x.Launch(r.s), r.s.Synchronize(), r.Agree(nil)); err != nil {
		return 0, err
	}
	failed := errors.Join(x.Launch(r.s), r.s.Record(events[0])) // one in front, so that the ranks have met
	for range count / each {
		failed = errors.Join(failed, x.Launch(r.s))
	}
	if err := errors.Join(failed, r.s.Record(events[1]), r.s.Synchronize(), x.Close()); err != nil {
		return 0, err
	}
	d, err := events[1].Since(events[0])
	if err = errors.Join(err, events[0].Close(), events[1].Close()); err != nil {
		return 0, err
	}
	all, err := r.Exchange(binary.LittleEndian.AppendUint64(nil, uint64(d)))
	if err != nil {
		return 0, err
	}
	for _, b := range all {
		d = max(d, time.Duration(binary.LittleEndian.Uint64(b)))
	}
	return float64(d.Nanoseconds()) / 1e3 / float64(count), nil
}
