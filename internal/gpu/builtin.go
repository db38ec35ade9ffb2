package gpu

import (
	"bytes"
	_ "embed" // the tables
	"fmt"
	"slices"
)

//go:embed tables/h200.json
var tableH200 []byte

//go:embed tables/h100.json
var tableH100 []byte

// builtinTables is the tables that come with the program, one for each kind of GPU that was measured. These kinds have the same
// multiprocessors and links, and differ in their memory.
func builtinTables() (all []*Table, err error) {
	for _, text := range [][]byte{tableH200, tableH100} {
		t, err := ReadTable(bytes.NewReader(text))
		if err != nil {
			return nil, fmt.Errorf("of the program: %w", err)
		}
		all = append(all, t)
	}
	return all, nil
}

// BuiltinTable is the table that comes with the program for GPUs of a name. Numbers of ranks that were not measured with them have the
// rows of the other kind. For GPUs of which none was measured it is a table that does not fit them: its rules alone count.
//
// Owns: the table is the caller's. Errors: none that a test of this package lets pass.
func BuiltinTable(machine string) (*Table, error) {
	all, err := builtinTables()
	if err != nil {
		return nil, err
	}
	i := max(slices.IndexFunc(all, func(t *Table) bool { return t.Machine == machine }), 0)
	table := all[i]
	measured := map[int]bool{}
	for _, r := range table.Rows {
		measured[r.Ranks] = true
	}
	for _, other := range all {
		for _, r := range other.Rows {
			if other != table && !measured[r.Ranks] {
				table.Rows = append(table.Rows, r)
			}
		}
	}
	return table, nil
}
