package cli

import (
	"errors"
	"fmt"
)

// ErrUsage is matched by errors of the command line, the settings or the launcher's variables. A
// program that returns one exits with code 2.
var ErrUsage = errors.New("invalid command line or settings")

// Usage returns an error that matches ErrUsage. Its text does not mention ErrUsage.
func Usage(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

// AsUsage returns err as an error that matches ErrUsage, with the same text.
func AsUsage(err error) error { return usageError{err} }

type usageError struct{ error }

// Is matches ErrUsage.
func (e usageError) Is(target error) bool { return target == ErrUsage }

// Unwrap returns the reason.
func (e usageError) Unwrap() error { return e.error }
