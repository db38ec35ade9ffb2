//go:build !race

// The race detector reports false races on data published through mapped memory.

package main

import (
	"context"
	"testing"
	"time"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/dist/backend"
	"github.com/symgrad/symgrad/internal/conformance"
)

// The suite on ranks that are processes and meet as those of a program do, and among them one that
// is killed.
func TestConformanceOfProcesses(t *testing.T) {
	open := func(ctx context.Context, opt conformance.LaunchOptions) (*dist.World, error) {
		return backend.Open(ctx, backend.Config{Backend: backend.SHM, StepTimeout: opt.StepTimeout, InitTimeout: time.Minute})
	}
	opt := conformance.Options{Most: 2, OneWorld: true, Large: 5003}
	conformance.RunWith(t, opt, conformance.Processes(open))
	conformance.RunOneSidedWith(t, opt, conformance.Processes(open))
}
