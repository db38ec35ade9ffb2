package gpu

import (
	"bytes"
	_ "embed" // the table
	"fmt"
	"slices"
	"sync"
)

// tableH100 is what symgrad tune wrote between two and four H100s.
//
//go:embed tables/h100.json
var tableH100 []byte

// likeH100 is the names of GPUs with the multiprocessors and links of an H100, whose memory
// differs.
var likeH100 = []string{"NVIDIA H200"}

// builtin is the table, read once.
var builtin = sync.OnceValues(func() (*Table, error) { return ReadTable(bytes.NewReader(tableH100)) })

// BuiltinTable is the table that comes with the program, for GPUs of a name. Those like the ones
// that were measured have its rows under their own name. For others it is a table that does not fit
// them: its rules alone count.
//
// Owns: its rows and rules are not to be changed. Errors: none that a test of this package lets
// pass.
func BuiltinTable(machine string) (*Table, error) {
	known, err := builtin()
	if err != nil {
		return nil, fmt.Errorf("of the program: %w", err)
	}
	table := *known
	if slices.Contains(likeH100, machine) {
		table.Machine = machine
	}
	return &table, nil
}
