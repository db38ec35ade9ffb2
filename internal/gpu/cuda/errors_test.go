package cuda

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/symgrad/symgrad/internal/dl"
)

func TestErrorSaysCallTextNumberLibraryAndRemedy(t *testing.T) {
	e := &Error{Call: "cuMemAlloc_v2", Code: 2, Name: "CUDA_ERROR_OUT_OF_MEMORY", Text: "out of memory", Library: "CUDA 13.0 (/lib/libcuda.so.1)"}
	want := "cuMemAlloc_v2: out of memory (CUDA_ERROR_OUT_OF_MEMORY, 2), CUDA 13.0 (/lib/libcuda.so.1): use smaller buffers, " +
		"or end other processes on this GPU (nvidia-smi lists them)"
	if e.Error() != want {
		t.Errorf("got  %s\nwant %s", e, want)
	}
	e = &Error{Call: "cuThing", Code: 1, Name: "CUDA_ERROR_INVALID_VALUE", Text: "invalid argument", Library: "CUDA 13.0"}
	if got, want := e.Error(), "cuThing: invalid argument (CUDA_ERROR_INVALID_VALUE, 1), CUDA 13.0"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestErrorMatchesWhatCallersBranchOn(t *testing.T) {
	sentinels := []error{ErrNoDevice, ErrMemory, dl.ErrUnsupported, ErrInvalid, ErrTooOld, ErrClosed}
	tests := []struct {
		code     int
		compiler bool
		matches  error
		fatal    bool
	}{
		{code: 1},
		{code: 2, matches: ErrMemory},
		{code: 34, matches: ErrNoDevice},
		{code: 100, matches: ErrNoDevice},
		{code: 214, fatal: true},
		{code: 600},
		{code: 700, fatal: true},
		{code: 701},
		{code: 719, fatal: true},
		{code: 801, matches: dl.ErrUnsupported},
		{code: 2, compiler: true},
		{code: 6, compiler: true},
	}
	for _, tt := range tests {
		e := &Error{Code: tt.code, compiler: tt.compiler}
		wrapped := fmt.Errorf("op: %w", e)
		for _, s := range sentinels {
			if got, want := errors.Is(wrapped, s), s == tt.matches; got != want {
				t.Errorf("code %d, compiler %t: matches %v is %t, want %t", tt.code, tt.compiler, s, got, want)
			}
		}
		if e.Fatal() != tt.fatal {
			t.Errorf("code %d: fatal is %t, want %t", tt.code, e.Fatal(), tt.fatal)
		}
		var as *Error
		if !errors.As(wrapped, &as) || as != e {
			t.Errorf("code %d is no *Error behind another", tt.code)
		}
	}
}

func TestRemediesAreSortedAndOnePerCode(t *testing.T) {
	var codes []int
	for _, r := range remedies {
		codes = append(codes, r.code)
		if r.text == "" || strings.HasSuffix(r.text, ".") {
			t.Errorf("code %d: %q", r.code, r.text)
		}
	}
	if !slices.IsSorted(codes) || len(slices.Compact(slices.Clone(codes))) != len(codes) {
		t.Errorf("codes are %v", codes)
	}
	if r := (&Error{Code: codeOutOfMemory, compiler: true}).Remedy(); r != "" {
		t.Errorf("NVRTC's code 2 gets the driver's remedy %q", r)
	}
}

func TestVersionText(t *testing.T) {
	for v, want := range map[int]string{13000: "13.0", 12080: "12.8", 11040: "11.4", 0: "0.0"} {
		if got := versionText(v); got != want {
			t.Errorf("versionText(%d) = %s, want %s", v, got, want)
		}
	}
}
