//go:build !race

package asym

// Store is a store with release semantics: a reader that sees it also sees all earlier writes. On
// amd64 that is a plain MOV (Intel SDM volume 3, "Memory Ordering": stores are not reordered with
// earlier loads and stores), and Go's compiler keeps the order of stores. sync/atomic would use
// XCHG, which also waits until all earlier stores have left this core. A later load may overtake
// it.
func Store(p *uint64, v uint64) { *p = v }
