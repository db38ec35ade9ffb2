package cuda_test

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"github.com/symgrad/symgrad/internal/gpu/cuda"
	"github.com/symgrad/symgrad/internal/gpu/cuda/cudatest"
)

func TestPeersAddressEachOther(t *testing.T) {
	vs := cudatest.Devices(t, 2)
	a, b := vs[0], vs[1]
	if a.UUID() == b.UUID() || a.PCI() == b.PCI() || a.Context() == b.Context() {
		t.Errorf("%s and %s are one device", a, b)
	}
	for _, v := range vs {
		if can, err := v.CanAccess(v); err != nil || !can {
			t.Errorf("%s cannot access itself: %v", v, err)
		}
		must(t, v.EnablePeer(v))
	}
	if can, err := a.CanAccess(b); err != nil || !can {
		cudatest.Missing(t, "%s cannot access %s, %v", a, b, err)
	}
	must(t, a.EnablePeer(b), a.EnablePeer(b), b.EnablePeer(a)) // twice is fine
	if atomics, err := a.PeerAtomics(b); err != nil {
		t.Error(err)
	} else {
		t.Logf("atomics of %s on %s: %t", a, b, atomics)
	}
	p := alloc(t, b, 8)
	must(t, b.Fill(p, 0, 8))
	f := cudatest.Kernel(t, a, kernels, "increment")
	s := stream(t, a, 0)
	var args cuda.Args
	args.Ptr(p)
	args.U32(41)
	must(t, f.Launch(s, cuda.Launch{}, &args), s.Write64(p, 42), s.Synchronize(), f.Launch(s, cuda.Launch{}, &args), s.Synchronize())
	if got := binary.LittleEndian.Uint64(read(t, b, p, 8)); got != 83 {
		t.Errorf("the peer's word is %d, want 83", got)
	}
}

func TestCopiesBetweenDevices(t *testing.T) {
	vs := cudatest.Devices(t, 2)
	const n = 3<<20 + 1
	a, b := alloc(t, vs[0], n), alloc(t, vs[1], n)
	want := pattern(n, 5)
	write(t, vs[0], a, want)
	must(t, vs[0].Copy(b, a, n))
	if !bytes.Equal(read(t, vs[1], b, n), want) {
		t.Error("pushed bytes differ")
	}
	want = pattern(n, 6)
	write(t, vs[1], b, want)
	s := stream(t, vs[0], 0)
	must(t, s.Copy(a, b, n), s.Synchronize())
	if !bytes.Equal(read(t, vs[0], a, n), want) {
		t.Error("pulled bytes differ")
	}
}

// Enter of one device inside that of another gives the first back, and streams of either take work
// anywhere.
func TestEnterNestsAcrossDevices(t *testing.T) {
	vs := cudatest.Devices(t, 2)
	p, q := alloc(t, vs[0], 8), alloc(t, vs[1], 8)
	s, r := stream(t, vs[0], 0), stream(t, vs[1], 0)
	f, g := cudatest.Kernel(t, vs[0], kernels, "increment"), cudatest.Kernel(t, vs[1], kernels, "increment")
	must(t, vs[0].Fill(p, 0, 8), vs[1].Fill(q, 0, 8))
	var a, b cuda.Args
	a.Ptr(p)
	a.U32(1)
	b.Ptr(q)
	b.U32(1)
	x, err := f.Keep(cuda.Launch{}, &a)
	must(t, err)
	y, err := g.Keep(cuda.Launch{}, &b)
	must(t, err)
	launch := func() {
		t.Helper()
		must(t, f.Launch(s, cuda.Launch{}, &a), g.Launch(r, cuda.Launch{}, &b), x.Launch(s), y.Launch(r))
	}
	launch() // in neither
	must(t, vs[0].Enter())
	launch()
	must(t, vs[1].Enter())
	launch()
	vs[1].Leave()
	must(t, f.Launch(s, cuda.Launch{}, &a))
	vs[0].Leave()
	must(t, s.Synchronize(), r.Synchronize())
	if x, y := read(t, vs[0], p, 1)[0], read(t, vs[1], q, 1)[0]; x != 7 || y != 6 {
		t.Errorf("%d and %d launches ran, want 7 and 6", x, y)
	}
	must(t, x.Close(), y.Close())
}

func TestEventsOrderStreamsOfTwoDevices(t *testing.T) {
	vs := cudatest.Devices(t, 2)
	const n = 8 << 20
	a, b := alloc(t, vs[0], n), alloc(t, vs[1], n)
	s, r, e := stream(t, vs[0], 0), stream(t, vs[1], 0), event(t, vs[0])
	gate := pinned(t, vs[0], 8)
	must(t, vs[0].Fill(a, 1, n), vs[1].Fill(b, 1, n))
	must(t, s.Wait64(gate.Device(), 1), s.Fill(a, 2, n), s.Record(e), r.Wait(e), r.Copy(b, a, n))
	word(gate, 0).Store(1)
	must(t, r.Synchronize())
	if !bytes.Equal(read(t, vs[1], b, n), bytes.Repeat([]byte{2}, n)) {
		t.Error("the copy overtook the fill")
	}
}

const ipcBytes = 1<<20 + 24

func TestOtherProcessesOpenMemory(t *testing.T) {
	if line := os.Getenv(childVariable); line != "" {
		openForParent(t, line)
		return
	}
	for _, n := range []int{1, 2} {
		t.Run(fmt.Sprintf("%d devices", n), func(t *testing.T) {
			vs := cudatest.Devices(t, n)
			v := vs[0]
			if n == 2 {
				if can, err := vs[1].CanAccess(v); err != nil || !can {
					cudatest.Missing(t, "%s cannot access %s, %v", vs[1], v, err)
				}
			}
			p := alloc(t, v, ipcBytes)
			write(t, v, p, pattern(ipcBytes, 1))
			h, err := v.IPCHandle(p)
			must(t, err)
			self, err := os.Executable()
			must(t, err)
			cmd := exec.Command(self, "-test.run=^TestOtherProcessesOpenMemory$", "-test.v")
			cmd.Env = append(os.Environ(), childVariable+"="+strconv.Itoa(n-1)+" "+hex.EncodeToString(h[:]))
			out, err := cmd.CombinedOutput()
			if err != nil || !bytes.Contains(out, []byte("--- PASS")) {
				t.Fatalf("%v\n%s", err, out)
			}
			if got := read(t, v, p, ipcBytes); !bytes.Equal(got, pattern(ipcBytes, 2)) {
				t.Error("what the other process wrote is not there")
			}
		})
	}
}

// openForParent is the other process.
func openForParent(t *testing.T, line string) {
	var index int
	var text string
	if _, err := fmt.Sscan(line, &index, &text); err != nil {
		t.Fatal(err)
	}
	b, err := hex.DecodeString(text)
	must(t, err)
	v := cudatest.Devices(t, index+1)[index]
	p, err := v.OpenIPC([64]byte(b))
	must(t, err)
	if !bytes.Equal(read(t, v, p, ipcBytes), pattern(ipcBytes, 1)) {
		t.Error("the memory is not the other process's")
	}
	write(t, v, p, pattern(ipcBytes, 2))
	f := cudatest.Kernel(t, v, kernels, "increment") // kernels reach it too
	s := stream(t, v, 0)
	var args cuda.Args
	args.Ptr(p)
	args.U32(0)
	must(t, f.Launch(s, cuda.Launch{}, &args), s.Synchronize(), v.CloseIPC(p))
}

func TestHandlesThatCannotBeOpened(t *testing.T) {
	v := cudatest.Devices(t, 1)[0]
	p := alloc(t, v, 4<<20)
	if _, err := v.IPCHandle(p + 256); !errors.Is(err, cuda.ErrInvalid) || !strings.Contains(err.Error(), "256 B into an allocation of 4194304 B") {
		t.Errorf("handle of the middle: %v", err)
	}
	h, err := v.IPCHandle(p)
	must(t, err)
	var e *cuda.Error
	if _, err := v.OpenIPC(h); !errors.As(err, &e) || !strings.Contains(err.Error(), "of this process") {
		t.Errorf("handle of this process: %v", err)
	}
	if _, err := v.OpenIPC([64]byte{1}); !errors.As(err, &e) {
		t.Errorf("handle of nothing: %v", err)
	}
}

// A stream of one process waits for a word that another process writes, as kernels of ranks do.
func TestProcessesSignalEachOther(t *testing.T) {
	if line := os.Getenv(childVariable); line != "" {
		answerParent(t, line)
		return
	}
	vs := cudatest.Devices(t, 2)
	if can, err := vs[1].CanAccess(vs[0]); err != nil || !can {
		cudatest.Missing(t, "%s cannot access %s, %v", vs[1], vs[0], err)
	}
	v := vs[0]
	p := alloc(t, v, 16)
	must(t, v.Fill(p, 0, 16))
	h, err := v.IPCHandle(p)
	must(t, err)
	self, err := os.Executable()
	must(t, err)
	cmd := exec.Command(self, "-test.run=^"+t.Name()+"$", "-test.v")
	cmd.Env = append(os.Environ(), childVariable+"="+hex.EncodeToString(h[:]))
	out, err := cmd.StdoutPipe()
	must(t, err)
	cmd.Stderr = os.Stderr
	must(t, cmd.Start())
	s := stream(t, v, 0)
	must(t, s.Write64(p, 7))
	// The other process says so when it has done its part; if it ends without, there is nothing to
	// wait for.
	lines := bufio.NewScanner(out)
	signalled := false
	var said []string
	for lines.Scan() {
		said = append(said, lines.Text())
		if lines.Text() == "signalled" {
			signalled = true
			must(t, s.Wait64(p+8, 8), s.Synchronize())
		}
	}
	if err := cmd.Wait(); err != nil || !signalled {
		t.Errorf("the other process signalled: %t, %v\n%s", signalled, err, strings.Join(said, "\n"))
	}
}

func answerParent(t *testing.T, line string) {
	b, err := hex.DecodeString(line)
	must(t, err)
	v := cudatest.Devices(t, 2)[1]
	p, err := v.OpenIPC([64]byte(b))
	must(t, err)
	s := stream(t, v, 0)
	must(t, s.Wait64(p, 7), s.Write64(p+8, 8), s.Synchronize())
	fmt.Println("signalled")
	must(t, v.CloseIPC(p))
}
