package program

import (
	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/tensor"
)

// Runner is a program loaded by a back half. It is for one goroutine at a time.
type Runner interface {
	// Bind binds the Outside value id to memory on the runner's device, with the value's dtype and
	// at least its length. All Outside values are bound before the first Run. Binding again is
	// allowed; it costs a device runner a new capture. Owns: the memory stays the caller's and must
	// live until it is bound anew or Close returns.
	Bind(id ID, b tensor.Buffer) error

	// Run runs the steps. On the host it returns when they are done, on a device when they are
	// queued. Errors: the first of a step, with its name. The values are then undefined, and the
	// next Run starts from the first step.
	Run() error

	// Wait returns when all queued work is done. Errors: those of the queued steps.
	Wait() error

	// Memory returns the memory of value id. An Arena value is whole only until a later step uses
	// its bytes; Outputs last until the next Run.
	Memory(id ID) (tensor.Buffer, error)

	// Close frees the runner's resources, after Wait. It may be called twice.
	Close() error
}

// Env has the parts of a run that a program refers to.
type Env struct {
	Groups []*dist.Group                             // of Collective
	Calls  []func(in, out []tensor.Buffer) error     // of Call
	Watch  func(step int, out []tensor.Buffer) error // if not nil: after each step, on the host; an error stops the run
}
