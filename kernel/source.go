package kernel

import (
	_ "embed"
	"fmt"
	"strings"

	"github.com/symgrad/symgrad/dist"
)

// Source is CUDA C, and its compiler options.
type Source struct {
	Name    string   // of the file, for the compiler's messages; "" means "kernel.cu"
	Text    string   // may include "symgrad.h", NVRTC's built-in headers, and files in directories of Options
	Options []string // of NVRTC, such as "--std=c++17" or "--use_fast_math"; the architecture is the stream's device's
	NVSHMEM bool     // the text includes nvshmem.h or nvshmemx.h, and calls NVSHMEM on the device: see the package
}

// header is the text of #include "symgrad.h".
//
//go:embed symgrad.h
var header string

// check reports errors that can be found without a compiler.
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

// name returns Name or its default.
func (src Source) name() string {
	if src.Name == "" {
		return "kernel.cu"
	}
	return src.Name
}

// expanded returns the text with the header instead of each of its includes; the header guards
// itself. NVRTC reads no files of this package. A #line after the header keeps the text's line
// numbers in messages.
func (src Source) expanded() string {
	lines := strings.SplitAfter(src.Text, "\n")
	for i, line := range lines {
		if includes(line) {
			lines[i] = fmt.Sprintf("#line 1 \"symgrad.h\"\n%s#line %d %q\n", header, i+2, src.name())
		}
	}
	return strings.Join(lines, "")
}

// includes reports whether a line includes the header: # include "symgrad.h", with blanks where C
// allows them.
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
