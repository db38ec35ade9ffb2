package lint

import (
	"strings"
	"testing"
)

// TestModuleKeepsTheHouseRules checks all rules on this module.
func TestModuleKeepsTheHouseRules(t *testing.T) {
	m, err := Load("../../..")
	if err != nil {
		t.Fatal(err)
	}
	if len(m.Files) == 0 {
		t.Fatal("no files")
	}
	for _, r := range Rules() {
		t.Run(strings.ReplaceAll(r.Name, " ", "-"), func(t *testing.T) {
			found := r.Check(m)
			for _, f := range found {
				t.Errorf("%s: %s", f.Place, f.Text)
			}
			if len(found) > 0 {
				t.Logf("why: %s", r.Why)
			}
		})
	}
}

// Lines of tables must name folders that exist.
func TestTablesNameFoldersThatExist(t *testing.T) {
	m, err := Load("../../..")
	if err != nil {
		t.Fatal(err)
	}
	exists := func(folder string) bool {
		for _, f := range m.Files {
			if f.in(folder) {
				return true
			}
		}
		return false
	}
	for _, l := range layers {
		if !exists(l.folder) {
			t.Errorf("layers: there is no folder %s", l.folder)
		}
		for _, target := range l.may {
			if _, ok := layerOf(target); target != "*" && !ok {
				t.Errorf("layers: %s may import %s, which has no line", l.folder, target)
			}
		}
	}
	for folder := range mayPanic {
		if !exists(folder) {
			t.Errorf("panics: there is no folder %s", folder)
		}
	}
}

// The directions are a DAG: a line names only folders of lines above it.
func TestLayersAreLeavesFirst(t *testing.T) {
	above := map[string]bool{}
	for _, l := range layers {
		for _, target := range l.may {
			if target != "*" && !above[target] {
				t.Errorf("%s may import %s, which comes later", l.folder, target)
			}
		}
		if above[l.folder] {
			t.Errorf("%s has two lines", l.folder)
		}
		above[l.folder] = true
	}
}
