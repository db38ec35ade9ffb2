package direct

import (
	_ "embed" // the kernels
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/symgrad/symgrad/internal/gpu/cuda"
	"github.com/symgrad/symgrad/internal/gpu/cuda/cudatest"
)

// floorPath is the output file of TestFloor, which is skipped without it.
var floorPath = flag.String("floor", "", "measure what the links between 2 and 4 GPUs carry by each kind of access; write `file`, and print a table")

//go:embed testdata/prelude.h
var prelude string

//go:embed testdata/floor.cu
var floorSource string

// flow is one way to move bytes between GPUs: a kernel of testdata/floor.cu, or the copy engines.
type flow struct {
	name   string // of the kernel without its variant; "engine"
	bulk   bool
	factor float64 // times that what a rank moves crosses its link one way
}

var flows = []flow{
	{"read", false, 1},
	{"write", false, 1},
	{"send", false, 1},
	{"fetch", false, 1},
	{"twoshot", false, 2},
	{"bulk_read", true, 1},
	{"bulk_write", true, 1},
	{"bulk_send", true, 1},
	{"bulk_fetch", true, 1},
	{"engine", false, 1},
}

// carried is one line of the result: bytes that cross a GPU's link one way, payload only, in a
// second, on the slowest GPU.
type carried struct {
	Ranks   int     `json:"ranks"`
	Flow    string  `json:"flow"`
	OneWay  bool    `json:"one_way"` // only the first GPU works
	Bytes   int64   `json:"bytes"`   // of a rank's buffer
	Variant string  `json:"variant"` // accesses under way and bytes of each, or bytes of a bulk copy
	Blocks  int     `json:"blocks"`
	Threads int     `json:"threads"`
	GBs     float64 `json:"gb_s"`
}

// floorMost is the largest buffer, of which each peer gets its part.
const floorMost = 256 << 20

// lane is a GPU of the measurement.
type lane struct {
	dev     *cuda.Device
	streams []*cuda.Stream // the first for kernels; one for each peer for the copy engines
	from    []*cuda.Event
	to      []*cuda.Event
	memory  uintptr // twice floorMost: its own, and what peers store
	kernels map[string]*cuda.Function
}

// TestFloor measures, when it is asked to: go test -run Floor -floor out.json.
func TestFloor(t *testing.T) {
	if *floorPath == "" {
		t.Skip("no -floor file")
	}
	var all []carried
	for _, n := range []int{2, 4} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			began, before := time.Now(), len(all)
			lanes := openLanes(t, cudatest.Devices(t, n))
			for _, f := range flows {
				for _, oneWay := range []bool{false, true} {
					for _, bytes := range []int64{8 << 20, 64 << 20, floorMost} {
						all = append(all, measureFlow(t, lanes, f, oneWay, bytes)...)
					}
				}
			}
			for _, c := range all[before:] {
				if !(c.GBs > 0) {
					t.Errorf("%+v: nothing was carried", c)
				}
			}
			t.Logf("%d GPUs, %v:\n%s", n, time.Since(began).Round(time.Second), floorTable(all[before:]))
		})
	}
	text, err := json.MarshalIndent(all, "", " ")
	if err = errors.Join(err, os.WriteFile(*floorPath, text, 0o644)); err != nil {
		t.Fatal(err)
	}
}

func must(t *testing.T, errs ...error) {
	t.Helper()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

// openLanes gives each device memory that the others address, streams and kernels.
func openLanes(t *testing.T, devices []*cuda.Device) []*lane {
	t.Helper()
	lanes := make([]*lane, len(devices))
	for i, v := range devices {
		l := &lane{dev: v, kernels: map[string]*cuda.Function{}}
		for _, peer := range devices {
			if peer == v {
				continue
			}
			must(t, v.EnablePeer(peer))
			s, err := v.NewStream(0)
			must(t, err)
			from, err := v.NewTimer()
			must(t, err)
			to, err := v.NewTimer()
			must(t, err)
			l.streams, l.from, l.to = append(l.streams, s), append(l.from, from), append(l.to, to)
		}
		memory, err := v.Alloc(2 * floorMost)
		must(t, err)
		l.memory = memory
		must(t, v.Fill(l.memory, 0, 2*floorMost))
		l.load(t)
		lanes[i] = l
	}
	t.Cleanup(func() {
		for _, l := range lanes {
			for i, s := range l.streams {
				must(t, s.Synchronize(), l.from[i].Close(), l.to[i].Close(), s.Close())
			}
			must(t, l.dev.Free(l.memory))
		}
	})
	return lanes
}

// load compiles the kernels; bulk copies are of compute capability 9.0.
func (l *lane) load(t *testing.T) {
	t.Helper()
	src := cuda.Source{Name: "floor.cu", Text: floorSource, Options: []string{"--std=c++17"}}
	major, _ := l.dev.Arch()
	if major >= 9 {
		src.Options = append(src.Options, "-DBULK")
	}
	image, err := cudatest.Compiler(t).Compile(l.dev, src)
	must(t, err)
	m, err := l.dev.Load(image)
	must(t, err)
	t.Cleanup(func() { must(t, m.Close()) })
	for _, f := range flows {
		names := []string{f.name}
		switch {
		case f.name == "engine" || f.bulk && major < 9:
			continue
		case !f.bulk:
			names = []string{f.name + "_1_16", f.name + "_4_16", f.name + "_8_16", f.name + "_8_8"}
		}
		for _, name := range names {
			l.kernels[name], err = m.Function(name)
			must(t, err)
		}
		if f.bulk {
			must(t, l.kernels[f.name].AllowShared(bulkShared(256, 4<<10)))
		}
	}
}

// bulkShared is the shared memory of a block of bulk copies: barriers, and four buffers a warp.
func bulkShared(threads, chunk int) int { return 1024 + threads/32*4*chunk }

// measureFlow measures a flow in all its variants: all shapes for 64 MiB, some for other sizes.
func measureFlow(t *testing.T, lanes []*lane, f flow, oneWay bool, bytes int64) []carried {
	t.Helper()
	c := carried{Ranks: len(lanes), Flow: f.name, OneWay: oneWay, Bytes: bytes}
	if f.name == "engine" {
		c.GBs = copyRate(t, lanes, oneWay, bytes)
		return []carried{c}
	}
	var all []carried
	blocks, threads, variants := []int{16, 32, 64, 112}, []int{256, 512}, []string{"_4_16", "_8_16"}
	if f.bulk {
		threads, variants = []int{32, 128, 256}, []string{"2048", "4096"}
	}
	if bytes == 64<<20 {
		blocks = []int{4, 8, 16, 32, 64, 96, 112, 128}
		if f.bulk {
			variants = append(variants, "1024")
		} else {
			variants = append(variants, "_1_16", "_8_8")
		}
	}
	for _, c.Variant = range variants {
		for _, c.Blocks = range blocks {
			for _, c.Threads = range threads {
				if f.bulk && lanes[0].kernels[f.name] == nil {
					continue
				}
				c.GBs = kernelRate(t, lanes, f, &c)
				all = append(all, c)
			}
		}
	}
	return all
}

// working is the lanes that do something.
func working(lanes []*lane, oneWay bool) []*lane {
	if oneWay {
		return lanes[:1]
	}
	return lanes
}

// floorPasses is how often a buffer is moved, so that a kernel begins long before the others end.
func floorPasses(bytes int64) int64 { return max(1, 256<<20/bytes) }

// kernelRate launches a kernel on all lanes and gives GB/s of the slowest.
func kernelRate(t *testing.T, lanes []*lane, f flow, c *carried) float64 {
	t.Helper()
	name, chunk, shared := f.name+c.Variant, 0, 0
	if f.bulk {
		name = f.name
		if _, err := fmt.Sscan(c.Variant, &chunk); err != nil {
			t.Fatal(err)
		}
		shared = bulkShared(c.Threads, chunk)
	}
	peers := int64(len(lanes) - 1)
	part := c.Bytes / peers &^ (128<<10 - 1)
	passes := floorPasses(c.Bytes)
	var args cuda.Args
	run := func(passes int64) {
		for r, l := range working(lanes, c.OneWay) {
			args.Reset()
			var at [3]uintptr
			for i := range peers { // each peer has a part for each of the others
				p := (r + 1 + int(i)) % len(lanes)
				at[i] = lanes[p].memory + floorMost + uintptr((peers-1-i)*part)
			}
			for _, p := range at {
				args.Ptr(p)
			}
			args.I64(peers)
			args.Ptr(l.memory)
			args.I64(part)
			args.I64(passes)
			args.I64(int64(chunk))
			grid := cuda.Launch{Grid: [3]uint32{uint32(c.Blocks)}, Block: [3]uint32{uint32(c.Threads)}, Shared: uint32(shared)}
			must(t, l.streams[0].Record(l.from[0]), l.kernels[name].Launch(l.streams[0], grid, &args), l.streams[0].Record(l.to[0]))
		}
	}
	run(passes)
	var most time.Duration
	for _, l := range working(lanes, c.OneWay) {
		must(t, l.streams[0].Synchronize())
		d, err := l.to[0].Since(l.from[0])
		must(t, err)
		most = max(most, d)
	}
	return f.factor * float64(part*peers*passes) / float64(most.Nanoseconds())
}

// copyRate has the copy engines store to all peers.
func copyRate(t *testing.T, lanes []*lane, oneWay bool, bytes int64) float64 {
	t.Helper()
	peers := int64(len(lanes) - 1)
	part := bytes / peers &^ (128<<10 - 1)
	passes := floorPasses(bytes)
	for r, l := range working(lanes, oneWay) {
		for i := range peers {
			p := (r + 1 + int(i)) % len(lanes)
			must(t, l.streams[i].Record(l.from[i]))
			for range passes {
				must(t, l.streams[i].Copy(lanes[p].memory+floorMost+uintptr((peers-1-i)*part), l.memory+uintptr(i*part), part))
			}
			must(t, l.streams[i].Record(l.to[i]))
		}
	}
	var most time.Duration
	for _, l := range working(lanes, oneWay) {
		for i := range peers {
			must(t, l.streams[i].Synchronize())
			d, err := l.to[i].Since(l.from[i])
			must(t, err)
			most = max(most, d)
		}
	}
	return float64(part*peers*passes) / float64(most.Nanoseconds())
}

// floorTable is the best of each flow by size, and by blocks at 64 MiB.
func floorTable(all []carried) string {
	best := func(keep func(c *carried) bool) (found carried) {
		for i := range all {
			if keep(&all[i]) && all[i].GBs > found.GBs {
				found = all[i]
			}
		}
		return found
	}
	var b strings.Builder
	for _, f := range flows {
		for _, oneWay := range []bool{false, true} {
			of := func(c *carried) bool { return c.Flow == f.name && c.OneWay == oneWay }
			fmt.Fprintf(&b, "%-10s %-7s", f.name, map[bool]string{false: "all", true: "one way"}[oneWay])
			var blocks []int
			for i := range all {
				if of(&all[i]) && all[i].Bytes == 64<<20 && !slices.Contains(blocks, all[i].Blocks) {
					blocks = append(blocks, all[i].Blocks)
				}
			}
			for _, bytes := range []int64{8 << 20, 64 << 20, floorMost} {
				c := best(func(c *carried) bool { return of(c) && c.Bytes == bytes })
				fmt.Fprintf(&b, " | %3d MiB %5.0f %dx%d %s", bytes>>20, c.GBs, c.Blocks, c.Threads, c.Variant)
			}
			b.WriteString(" | 64 MiB by blocks")
			for _, n := range blocks {
				fmt.Fprintf(&b, " %d:%.0f", n, best(func(c *carried) bool { return of(c) && c.Bytes == 64<<20 && c.Blocks == n }).GBs)
			}
			b.WriteString("\n")
		}
	}
	return b.String()
}
