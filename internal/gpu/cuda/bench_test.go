package cuda_test

import (
	"testing"

	"github.com/symgrad/symgrad/internal/gpu/cuda"
	"github.com/symgrad/symgrad/internal/gpu/cuda/cudatest"
)

const manyWords = 24

// wordKernels take no words, many, and as many in one argument.
var wordKernels = `
#define W(a, b, c, d) unsigned long long a, unsigned long long b, unsigned long long c, unsigned long long d
extern "C" __global__ void none() {}
extern "C" __global__ void many(W(a, b, c, d), W(e, f, g, h), W(i, j, k, l), W(m, n, o, p), W(q, r, s, t), W(u, v, w, x)) {}
struct words { unsigned long long w[24]; };
extern "C" __global__ void one(words w) {}
`

// Host cost of one call, between Enter and Leave except the last. The stream is drained now and
// then, outside of the measured time, because a full queue blocks callers.
func BenchmarkHostCost(b *testing.B) {
	v := cudatest.Devices(b, 1)[0]
	f := cudatest.Kernel(b, v, kernels, "increment")
	s, other, e := stream(b, v, 0), stream(b, v, 0), event(b, v)
	p := alloc(b, v, 64)
	must(b, v.Fill(p, 0, 64))
	var args cuda.Args
	none, many, one := cudatest.Kernel(b, v, wordKernels, "none"), cudatest.Kernel(b, v, wordKernels, "many"), cudatest.Kernel(b, v, wordKernels, "one")
	words := make([]byte, 8*manyWords)
	for range manyWords {
		args.U64(1)
	}
	kept, err := many.Keep(cuda.Launch{}, &args)
	must(b, err)
	set, err := none.Keep(cuda.Launch{}, nil)
	must(b, err, set.Launch(s), set.Set(many, cuda.Launch{}, &args))
	again := func() error { return kept.Launch(s) }
	measure := func(b *testing.B, call func() error) {
		b.ReportAllocs()
		n := 0
		for b.Loop() {
			if err := call(); err != nil {
				b.Fatal(err)
			}
			if n++; n%256 == 0 {
				b.StopTimer()
				must(b, s.Synchronize(), other.Synchronize())
				b.StartTimer()
			}
		}
		must(b, s.Synchronize(), other.Synchronize())
	}
	for _, c := range []struct {
		name string
		call func() error
	}{
		{"enter and leave", func() error { err := v.Enter(); v.Leave(); return err }},
		{"launch", func() error {
			args.Reset()
			args.Ptr(p)
			args.U32(1)
			return f.Launch(s, cuda.Launch{}, &args)
		}},
		{"launch without arguments", func() error { return none.Launch(s, cuda.Launch{}, nil) }},
		{"launch with 24 arguments", func() error {
			args.Reset()
			for range manyWords {
				args.U64(1)
			}
			return many.Launch(s, cuda.Launch{}, &args)
		}},
		{"launch with 24 words in one argument", func() error {
			args.Reset()
			args.Bytes(words)
			return one.Launch(s, cuda.Launch{}, &args)
		}},
		{"kept, with 24 arguments", again},
		{"kept in the place of another, with 24 arguments", func() error { return set.Launch(s) }},
		{"record", func() error { return s.Record(e) }},
		{"wait", func() error { return other.Wait(e) }},
		{"write64", func() error { return s.Write64(p, 1) }},
		{"copy 8 B", func() error { return s.Copy(p+8, p, 8) }},
		{"done", func() error { _, err := e.Done(); return err }},
	} {
		b.Run(c.name, func(b *testing.B) {
			must(b, v.Enter())
			defer v.Leave()
			measure(b, c.call)
		})
	}
	b.Run("kept, with 24 arguments, without a context", func(b *testing.B) { measure(b, again) })
	must(b, kept.Close(), set.Close())
}
