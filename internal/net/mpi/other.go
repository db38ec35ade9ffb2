//go:build !linux

package mpi

// signals is empty: libraries are loaded on Linux only.
type signals struct{}

func saveSignals() *signals { return nil }

func (*signals) restore() int { return 0 }

// pmi is empty, as signals.
type pmi struct{}

func pmiOf(map[string]string) pmi { return pmi{} }

func (pmi) finish() error { return nil }
