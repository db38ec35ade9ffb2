package kernel

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/internal/gpu/cuda"
	"github.com/symgrad/symgrad/tensor"
)

func TestHeaderStandsForItsInclude(t *testing.T) {
	for _, line := range []string{`#include "symgrad.h"`, "  # include\t\"symgrad.h\" // signals", "#include <symgrad.h>"} {
		src := Source{Name: "k.cu", Text: "// one\n" + line + "\nint three;\n"}
		got := src.expanded()
		want := "// one\n#line 1 \"symgrad.h\"\n" + header + "#line 3 \"k.cu\"\nint three;\n"
		if got != want {
			t.Errorf("%q becomes\n%s", line, got)
		}
	}
}

// Text that is put together of pieces includes the header once for each; and the first include may
// be one that the compiler never sees.
func TestHeaderStandsForEachOfItsIncludes(t *testing.T) {
	const include = "#include \"symgrad.h\"\n"
	for _, between := range []string{"int two;\n", "*/\n", "#endif\n"} {
		got := Source{Name: "k.cu", Text: include + between + include + "int four;\n"}.expanded()
		want := "#line 1 \"symgrad.h\"\n" + header + "#line 2 \"k.cu\"\n" + between +
			"#line 1 \"symgrad.h\"\n" + header + "#line 4 \"k.cu\"\nint four;\n"
		if got != want {
			t.Errorf("two includes with %q between them become\n%s", between, got)
		}
	}
}

func TestOtherTextIsLeftAlone(t *testing.T) {
	for _, text := range []string{
		"int x;", "#include \"other.h\"\n", "// #include \"symgrad.h\"\nint x;\n", "#define symgrad \"symgrad.h\"\n", "",
	} {
		if got := (Source{Text: text}).expanded(); got != text {
			t.Errorf("%q becomes %q", text, got)
		}
	}
}

// The header is spliced into text whose line numbers must stay: it has to end with its last line.
func TestHeaderEndsWithALine(t *testing.T) {
	if !strings.HasSuffix(header, "#endif\n") || strings.Contains(header, "#include") {
		t.Errorf("header %q", header)
	}
}

func TestSourcesThatNeedNoCompilerToBeWrong(t *testing.T) {
	for _, test := range []struct {
		src  Source
		want string
	}{
		{Source{}, "no text"},
		{Source{Text: " \n"}, "no text"},
		{Source{Text: "x", Options: []string{"-arch=sm_90"}}, "option -arch=sm_90: the architecture is that of the stream's device"},
		{Source{Text: "x", Options: []string{"--gpu-architecture=sm_90"}}, "leave it out"},
	} {
		if err := test.src.check(); !errors.Is(err, dist.ErrInvalid) || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%+v: error %v, want %q", test.src, err, test.want)
		}
	}
	if err := (Source{Text: "x", Options: []string{"--std=c++17"}}).check(); err != nil {
		t.Error(err)
	}
}

func TestShapes(t *testing.T) {
	for _, test := range []struct {
		s    Shape
		want cuda.Launch
		err  string
	}{
		{Shape{}, cuda.Launch{Grid: [3]uint32{1, 1, 1}, Block: [3]uint32{1, 1, 1}}, ""},
		{
			Shape{Grid: [3]uint32{64}, Block: [3]uint32{32, 32}, Shared: 48 << 10},
			cuda.Launch{Grid: [3]uint32{64, 1, 1}, Block: [3]uint32{32, 32, 1}, Shared: 48 << 10},
			"",
		},
		{Shape{Together: true}, cuda.Launch{Grid: [3]uint32{1, 1, 1}, Block: [3]uint32{1, 1, 1}, Together: true}, ""},
		{Shape{Block: [3]uint32{1025}}, cuda.Launch{}, "a block of [1025 1 1] threads has more than 1024"},
		{Shape{Block: [3]uint32{1 << 31, 1 << 31, 1 << 31}}, cuda.Launch{}, "has more than 1024"},
		{Shape{Block: [3]uint32{1, 16, 64}}, cuda.Launch{Grid: [3]uint32{1, 1, 1}, Block: [3]uint32{1, 16, 64}}, ""},
		{Shape{Block: [3]uint32{1, 1, 65}}, cuda.Launch{}, "a block of [1 1 65] threads has more than 64 in z"},
		{Shape{Grid: [3]uint32{1 << 31}}, cuda.Launch{}, "a grid of [2147483648 1 1] blocks has more than 2147483647, 65535 or 65535"},
		{Shape{Grid: [3]uint32{1, 65536}}, cuda.Launch{}, "65535"},
		{Shape{Grid: [3]uint32{1, 1, 65536}}, cuda.Launch{}, "65535"},
		{Shape{Shared: 48<<10 + 1}, cuda.Launch{}, "49153 B of shared memory, more than 49152; AllowShared allows more"},
	} {
		got, err := test.s.launch(freeShared)
		switch {
		case test.err == "" && (err != nil || got != test.want):
			t.Errorf("%+v: %+v, %v; want %+v", test.s, got, err, test.want)
		case test.err != "" && (!errors.Is(err, dist.ErrInvalid) || !strings.Contains(err.Error(), test.err)):
			t.Errorf("%+v: error %v, want %q", test.s, err, test.err)
		}
	}
}

// On the host there is nothing to compile for: every call says so, and how to come to a GPU.
func TestStreamsOfTheHostAreRefused(t *testing.T) {
	w, h := heap(t)
	r := region(t, h, 8)
	s := w.Stream()
	f := &Function{module: &Module{name: "m.cu"}, name: "f"}
	for name, call := range map[string]func() error{
		"compile m.cu: ":                    func() error { _, err := Compile(s, Source{Name: "m.cu", Text: "x"}); return err },
		"launch f of m.cu: ":                func() error { return f.Launch(s, Shape{}) },
		"peers of a region, rank 0/1: ":     func() error { _, err := Peers(w.Group, r); return err },
		"copy 8 untyped B on host to 8 unt": func() error { return Copy(s, r.Local(), r.Local()) },
		"mark: not supported: the stream i": func() error { _, err := Mark(s); return err },
		"new stream: ":                      func() error { _, err := NewStream(s); return err },
	} {
		err := call()
		if !errors.Is(err, dist.ErrUnsupported) || !strings.HasPrefix(err.Error(), name) ||
			!strings.Contains(err.Error(), "open the world on a backend that uses them") {
			t.Errorf("%s: error %v", name, err)
		}
	}
	if _, err := Compile(nil, Source{Text: "x"}); !errors.Is(err, dist.ErrInvalid) {
		t.Errorf("without a stream: error %v", err)
	}
}

func TestArgumentsFillTheirRoom(t *testing.T) {
	a, err := cuda.NewArgs(mostArgs)
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range []value{{0x3c00, 2}, {1, 1}, {7, 4}, {9, 8}} {
		push(a, v)
	}
	if a.Len() != 4 {
		t.Errorf("%d arguments", a.Len())
	}
}

// Errors of the driver's package match the sentinels that programs know, and keep their text.
func TestErrorsOfTheDriverHaveTheirKind(t *testing.T) {
	refused := &cuda.Error{Call: "nvrtcCompileProgram", Code: 6, Text: "k.cu(1): error: no"}
	for _, test := range []struct {
		err  error
		kind error
	}{
		{fmt.Errorf("launch: %w", cuda.ErrInvalid), dist.ErrInvalid},
		{fmt.Errorf("compile: %w", refused), dist.ErrInvalid},
		{cuda.ErrTooOld, dist.ErrUnsupported},
		{cuda.ErrClosed, dist.ErrClosed},
	} {
		got := kindOf(test.err)
		if !errors.Is(got, test.kind) || !errors.Is(got, test.err) || got.Error() != test.err.Error() {
			t.Errorf("%v becomes %v, which does not match %v", test.err, got, test.kind)
		}
	}
	failed := &cuda.Error{Call: "cuLaunchKernel", Code: 719}
	if got := kindOf(failed); got != error(failed) || kindOf(nil) != nil {
		t.Errorf("%v becomes %v", failed, got)
	}
}

func TestBufferAtAnAddress(t *testing.T) {
	if b, err := bufferAt(0x1000, 16, tensor.CUDA(2)); err != nil || b.Device() != tensor.CUDA(2) || addressOf(b) != 0x1000 || b.Len() != 16 {
		t.Errorf("%v, %v", b, err)
	}
}

// A region outside a GPU's memory has no stream, and work outside GPUs is not timed.
func TestStreamsOfTheHostQueueNoTransfers(t *testing.T) {
	s := dist.NewHostStream()
	defer func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}()
	if _, err := OnStream(nil, s); !errors.Is(err, dist.ErrUnsupported) || !strings.Contains(err.Error(), "region on a stream") {
		t.Errorf("a stream of the host: error %v", err)
	}
	if _, err := OnStream(nil, nil); !errors.Is(err, dist.ErrInvalid) {
		t.Errorf("no stream: error %v", err)
	}
	if _, err := Elapsed(dist.Work{}); !errors.Is(err, dist.ErrUnsupported) {
		t.Errorf("work of nobody: error %v", err)
	}
}
