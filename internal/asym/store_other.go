//go:build !amd64 || race

package asym

import "sync/atomic"

// Store is a store with release semantics: what was written before it is visible to whoever sees
// it. A later load may overtake it.
func Store(p *uint64, v uint64) { atomic.StoreUint64(p, v) }
