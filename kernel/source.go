package kernel

import (
	_ "embed"
	"fmt"
	"strings"

	"github.com/symgrad/symgrad/dist"
)

// Source is CUDA C, and how to compile it.
type Source struct {
	Name    string   // of the file, for the compiler's messages; "" means "kernel.cu"
	Text    string   // may include "symgrad.h", what NVRTC has built in, and files where Options say
	Options []string // of NVRTC, such as "--std=c++17" or "--use_fast_math"; the architecture is the stream's device's
	NVSHMEM bool     // the text includes nvshmem.h or nvshmemx.h, and calls NVSHMEM on the device: see the package
}

// header is what stands for #include "symgrad.h".
//
//go:embed symgrad.h
var header string

// check reports what no compiler is needed for to see.
func (src Source) check() error {
	if strings.TrimSpace(src.Text) == "" {
		return fmt.Errorf("%w: no text", dist.ErrInvalid)
	}
	for _, o := range src.Options {
		if strings.HasPrefix(o, "-arch") || strings.HasPrefix(o, "--gpu-architecture") {
			return fmt.Errorf("%w: option %s: the architecture is that of the stream's device; leave it out", dist.ErrInvalid, o)
		}
	}
	return nil
}

// name is Name or its default.
func (src Source) name() string {
	if src.Name == "" {
		return "kernel.cu"
	}
	return src.Name
}

// expanded is the text with the header in the place of each of its includes: it guards itself, as
// headers do, and which of them the compiler sees is the text's affair. NVRTC reads no files of
// ours; a #line behind the header keeps its messages' line numbers those of the text.
func (src Source) expanded() string {
	lines := strings.SplitAfter(src.Text, "\n")
	for i, line := range lines {
		if includes(line) {
			lines[i] = fmt.Sprintf("#line 1 \"symgrad.h\"\n%s#line %d %q\n", header, i+2, src.name())
		}
	}
	return strings.Join(lines, "")
}

// includes reports whether a line is the include of our header: # include "symgrad.h", with blanks
// wherever C lets them be.
func includes(line string) bool {
	rest, ok := strings.CutPrefix(strings.TrimSpace(line), "#")
	if !ok {
		return false
	}
	rest, ok = strings.CutPrefix(strings.TrimSpace(rest), "include")
	if !ok {
		return false
	}
	rest = strings.TrimSpace(rest)
	return strings.HasPrefix(rest, `"symgrad.h"`) || strings.HasPrefix(rest, "<symgrad.h>")
}
