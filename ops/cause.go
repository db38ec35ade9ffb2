package ops

import "errors"

// Cause returns err without the wrapping of Gorgonia's machines, which errors.Is and errors.As
// cannot unwrap:
//
//	if err := vm.RunAll(); errors.Is(ops.Cause(err), dist.ErrAborted) { ... }
//
// Errors of gorgonia.Grad cannot be unwrapped.
func Cause(err error) error {
	for {
		var vm interface{ Err() error } // gorgonia's vmContextualError
		if !errors.As(err, &vm) || vm.Err() == nil {
			return err
		}
		err = vm.Err()
	}
}
