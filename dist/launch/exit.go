package launch

import (
	"errors"

	"github.com/symgrad/symgrad/dist"
)

// ExitPeerLost is the exit code of a rank that ended because it lost a peer: EX_TEMPFAIL of
// sysexits(3). The launcher blames such a rank only if no other failed by itself.
const ExitPeerLost = 75

// ExitCode returns the exit code for a program that ends with err: 0 for nil, ExitPeerLost when a
// peer died, aborted or left (dist.ErrAborted, dist.ErrClosed), else 1.
func ExitCode(err error) int {
	switch {
	case err == nil:
		return 0
	case errors.Is(err, dist.ErrAborted), errors.Is(err, dist.ErrClosed):
		return ExitPeerLost
	default:
		return 1
	}
}
