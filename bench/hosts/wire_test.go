package hosts

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/internal/host/reduce"
	"github.com/symgrad/symgrad/internal/net/hostcost"
	"github.com/symgrad/symgrad/internal/net/ucx"
	"github.com/symgrad/symgrad/internal/net/wire"
	"github.com/symgrad/symgrad/tensor"
)

// role is this process's part in a measurement of the wire.
var role = flag.String("wire", "", "rank, number of hosts and folder, for a process of TestMeasureHosts")

// folder is a store of addresses in a folder that all hosts see.
type folder string

func (f folder) Set(_ context.Context, key string, value []byte) error {
	name := f.file(key)
	return errors.Join(os.WriteFile(name+".new", value, 0o600), os.Rename(name+".new", name))
}

func (f folder) Get(ctx context.Context, key string) ([]byte, error) {
	for b := (wire.Backoff{}); ; b.Pause() {
		value, err := os.ReadFile(f.file(key))
		if err == nil || !errors.Is(err, fs.ErrNotExist) {
			return value, err
		}
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
	}
}

func (f folder) file(key string) string {
	return filepath.Join(string(f), strings.ReplaceAll(key, "/", "."))
}

// TestWireOfHost is one process of a measurement of the wire. The first prints a hostcost.Net.
func TestWireOfHost(t *testing.T) {
	var rank, hosts int
	var store string
	if *role == "" {
		t.Skip("it is a part of TestMeasureHosts")
	}
	if _, err := fmt.Sscan(*role, &rank, &hosts, &store); err != nil {
		t.Fatal(err)
	}
	w, err := ucx.Open(t.Context(), rank, hosts, folder(store), ucx.Config{Transports: "tcp,self"})
	if err != nil {
		t.Fatal(err)
	}
	runtime.LockOSThread()
	e := end{w: w, rank: rank, hosts: hosts, in: make([]byte, span), out: make([]byte, span)}
	net, err := e.measure()
	if err := errors.Join(err, w.Close()); err != nil {
		t.Fatal(err)
	}
	if text, err := json.Marshal(net); rank == 0 && err == nil {
		fmt.Printf("%s\n", text)
	}
}

// Sizes of the measurements, in bytes and messages.
const (
	span    = 64 << 20  // memory that messages go over: more than a cache has
	chunk   = 256 << 10 // of a stream, as of a chain
	small   = 72        // an exchange of 8 bytes
	window  = 8         // messages of a stream on their way
	repeats = 20
)

// exchanges are the bytes of the measured exchanges. UCX changes its way between 16 and 20 KiB.
var exchanges = []int{small, 1 << 10, 4 << 10, 8 << 10, 16<<10 + 64, 20 << 10, 32 << 10, 48 << 10, 64 << 10, 128 << 10, 256 << 10, 512 << 10, 2 << 20}

// end is one process of a measurement.
type end struct {
	w           wire.Wire
	rank, hosts int
	in, out     []byte
	turn        int // messages take turns on this memory
	reqs        [2 * window]wire.Request
}

// measure returns the network. A time is the median of some repeats.
//
// Collective: all processes. Only the first has the results.
func (e *end) measure() (hostcost.Net, error) {
	repeat := func(do func() (float64, error)) (float64, error) {
		times := make([]float64, repeats)
		for i := range times {
			err := e.meet()
			if err == nil {
				times[i], err = do()
			}
			if err != nil {
				return 0, err
			}
		}
		slices.Sort(times)
		return times[repeats/2], e.meet()
	}
	net := hostcost.Net{Hosts: e.hosts, Ranks: 1}
	for _, bytes := range exchanges {
		seconds, err := repeat(func() (float64, error) { return e.exchange(bytes) })
		if err != nil {
			return net, err
		}
		net.Exchanges = append(net.Exchanges, hostcost.Point{Bytes: int64(bytes), Seconds: seconds})
	}
	pair, err := repeat(func() (float64, error) { return e.stream(40, chunk, 2) })
	if err != nil {
		return net, err
	}
	all, err := repeat(func() (float64, error) { return e.stream(40, chunk, e.hosts) })
	if err != nil {
		return net, err
	}
	// With a processor each, all hosts together are as fast as two.
	net.Processors = min(float64(e.hosts)*pair/all, float64(e.hosts))
	sum, err := repeat(e.sum)
	net.Memory = span / sum
	return net, err
}

// exchange sends a message to every other process and takes one from each, some times. Returns: the
// seconds of one time.
func (e *end) exchange(bytes int) (float64, error) {
	const least, most, moved = 4, 200, 2 << 20
	times := min(max(moved/bytes, least), most)
	begin := time.Now()
	for range times {
		at := e.turn * bytes % (span - bytes + 1)
		e.turn++
		rs := e.reqs[:0:len(e.reqs)]
		for k := 1; k < e.hosts; k++ {
			rs = rs[:len(rs)+2]
			e.w.Recv(&rs[len(rs)-2], (e.rank+e.hosts-k)%e.hosts, 2, e.in[at:at+bytes])
			e.w.Send(&rs[len(rs)-1], (e.rank+k)%e.hosts, 2, e.out[at:at+bytes])
		}
		for k := range rs {
			if err := wire.Wait(e.w, nil, &rs[k]); err != nil {
				return 0, err
			}
		}
	}
	return time.Since(begin).Seconds() / float64(times), nil
}

// meet is a barrier.
func (e *end) meet() error {
	if e.rank > 0 {
		if err := e.send(0, small); err != nil {
			return err
		}
		return e.recv(0, small)
	}
	for r := 1; r < e.hosts; r++ {
		if err := e.recv(r, small); err != nil {
			return err
		}
	}
	for r := 1; r < e.hosts; r++ {
		if err := e.send(r, small); err != nil {
			return err
		}
	}
	return nil
}

func (e *end) send(peer, bytes int) error {
	e.w.Send(&e.reqs[0], peer, 1, e.out[:bytes])
	return wire.Wait(e.w, nil, &e.reqs[0])
}

func (e *end) recv(peer, bytes int) error {
	e.w.Recv(&e.reqs[0], peer, 1, e.in[:bytes])
	return wire.Wait(e.w, nil, &e.reqs[0])
}

// stream sends messages to the next of the first n processes, and takes as many from the one
// before. It returns the seconds of a message.
func (e *end) stream(messages, bytes, n int) (float64, error) {
	if e.rank >= n {
		return 0, nil
	}
	next, prev := (e.rank+1)%n, (e.rank+n-1)%n
	begin := time.Now()
	for i := range messages + window {
		at := i * bytes % (span - bytes + 1)
		out, in := &e.reqs[i%window], &e.reqs[window+i%window]
		if err := wire.Wait(e.w, nil, out, in); err != nil {
			return 0, err
		}
		if i >= messages {
			continue
		}
		e.w.Recv(in, prev, 2, e.in[at:at+bytes])
		e.w.Send(out, next, 2, e.out[at:at+bytes])
	}
	got, has := &e.reqs[0], &e.reqs[1] // the other end has them
	e.w.Recv(got, next, 1, e.in[:1])
	e.w.Send(has, prev, 1, e.out[:1])
	if err := wire.Wait(e.w, nil, got, has); err != nil {
		return 0, err
	}
	return time.Since(begin).Seconds() / float64(messages), nil
}

// sum adds float32, as all processes do, and returns the seconds for span bytes.
func (e *end) sum() (float64, error) {
	add := reduce.For(tensor.F32, dist.RedSum)
	begin := time.Now()
	for at := 0; at < span; at += chunk {
		dsts := [1]unsafe.Pointer{unsafe.Pointer(&e.in[at])}
		srcs := [2]unsafe.Pointer{dsts[0], unsafe.Pointer(&e.out[at])}
		add(dsts[:], srcs[:], chunk/4, nil, 0)
	}
	return time.Since(begin).Seconds(), nil
}
