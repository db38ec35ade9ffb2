package dl

import "errors"

var (
	// ErrNotFound is returned by Open when no candidate could be loaded. The message lists each one
	// with the loader's own words.
	ErrNotFound = errors.New("library not found")

	// ErrUnsupported is returned by Lookup, Require, Bind and Proc.Call when a library does not
	// export a symbol, by Bind and Callback for a Go signature that has no C counterpart, and by
	// everything on a platform without dlopen.
	ErrUnsupported = errors.New("unsupported")
)
