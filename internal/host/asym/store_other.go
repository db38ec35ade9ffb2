//go:build !amd64 || race

package asym

import "sync/atomic"

// Store is a store with release semantics: a reader that sees it also sees all earlier writes. A
// later load may overtake it.
func Store(p *uint64, v uint64) { atomic.StoreUint64(p, v) }
