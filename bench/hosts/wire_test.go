package hosts

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/internal/hostcost"
	"github.com/symgrad/symgrad/internal/reduce"
	"github.com/symgrad/symgrad/internal/ucx"
	"github.com/symgrad/symgrad/internal/wire"
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
	span    = 16 << 20  // memory that streams go over: more than a cache has
	chunk   = 256 << 10 // of a stream, as of a chain
	small   = 72        // an exchange of 8 bytes
	window  = 8         // messages of a stream on their way
	repeats = 20
)

// end is one process of a measurement.
type end struct {
	w           wire.Wire
	rank, hosts int
	in, out     []byte
	reqs        [2 * window]wire.Request
}

// measure returns the network. A speed is the best of some repeats.
//
// Collective: all processes. Only the first has the results.
func (e *end) measure() (hostcost.Net, error) {
	net := hostcost.Net{Hosts: e.hosts, Ranks: 1, Latency: math.Inf(1), Overhead: math.Inf(1)}
	var pair float64
	for range repeats {
		for _, m := range []struct {
			put func(seconds float64)
			do  func() (seconds float64, err error)
		}{
			{func(s float64) { net.Latency = min(net.Latency, s) }, e.ring},
			{func(s float64) { net.Overhead = min(net.Overhead, s) }, func() (float64, error) { return e.stream(500, small, e.rank == 0, e.rank == 1, 1) }},
			{func(s float64) { net.Bandwidth = max(net.Bandwidth, chunk/s) }, func() (float64, error) { return e.stream(40, chunk, e.rank == 0, e.rank == 1, 1) }},
			{func(s float64) { pair = max(pair, chunk/s) }, func() (float64, error) { return e.stream(40, chunk, e.rank < 2, e.rank < 2, 1) }},
			{func(s float64) { net.Both = max(net.Both, chunk/s) }, func() (float64, error) { return e.stream(40, chunk, true, true, e.hosts-1) }},
			{func(s float64) { net.Memory = max(net.Memory, span/s) }, e.sum},
		} {
			if err := e.meet(); err != nil {
				return net, err
			}
			begin := time.Now()
			each, err := m.do()
			if err == nil {
				err = e.meet()
			}
			if err != nil {
				return net, fmt.Errorf("after %v: %w", time.Since(begin), err)
			}
			m.put(each)
		}
	}
	// All hosts together move hosts x all bytes; with a processor each it would be hosts x pair.
	all := net.Both
	if e.hosts == 2 { // both are the same measurement
		pair, all = max(pair, all), max(pair, all)
	}
	net.Both = min(pair, net.Bandwidth)
	net.Processors = min(float64(e.hosts)*all/pair, float64(e.hosts))
	net.Overhead = min(net.Overhead, net.Latency/2)
	return net, nil
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

// ring passes a small message around all processes, and returns the seconds from one to the next.
func (e *end) ring() (float64, error) {
	const rounds = 100
	next, prev := (e.rank+1)%e.hosts, (e.rank+e.hosts-1)%e.hosts
	begin := time.Now()
	for range rounds {
		steps := []func() error{func() error { return e.recv(prev, small) }, func() error { return e.send(next, small) }}
		if e.rank == 0 {
			steps[0], steps[1] = steps[1], steps[0]
		}
		for _, step := range steps {
			if err := step(); err != nil {
				return 0, err
			}
		}
	}
	return time.Since(begin).Seconds() / float64(rounds*e.hosts), nil
}

// stream sends messages to the next process, if sends, and takes as many from the one before, if
// takes, of the first last+1 processes. It returns the seconds of a message.
func (e *end) stream(messages, bytes int, sends, takes bool, last int) (float64, error) {
	n := last + 1
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
		if takes {
			e.w.Recv(in, prev, 2, e.in[at:at+bytes])
		}
		if sends {
			e.w.Send(out, next, 2, e.out[at:at+bytes])
		}
	}
	got, has := &e.reqs[0], &e.reqs[1] // the other end has them
	if sends {
		e.w.Recv(got, next, 1, e.in[:1])
	}
	if takes {
		e.w.Send(has, prev, 1, e.out[:1])
	}
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
