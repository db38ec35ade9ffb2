package dl

import "errors"

var (
	// ErrNotFound is returned by Open if no candidate could be loaded. The message lists each one
	// with the loader's text.
	ErrNotFound = errors.New("library not found")

	// ErrUnsupported is returned by Lookup, Require, Bind and Proc.Call if a library does not
	// export a symbol. Bind and Callback return it for a Go signature without a C counterpart, and
	// all functions on a platform without dlopen.
	ErrUnsupported = errors.New("unsupported")
)
