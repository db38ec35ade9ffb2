package mpi_test

import (
	"strings"
	"testing"
)

// The library of the standard ABI is a link to that of one product, whose launcher it needs.
func TestStandardABIKeepsTheRulesOfWires(t *testing.T) {
	const library = "libmpi_abi.so.1"
	out, err := runAlone(t, "find", library)
	if err != nil {
		t.Skipf("no library of MPI 5: %s", out)
	}
	if !strings.HasPrefix(out, "standard|") {
		t.Fatalf("found %s", out)
	}
	s := suites[0]
	if strings.Contains(out, "MPICH") {
		s = suites[1]
	}
	s.need(t)
	s.must(t, 2, "rules", libraryVar+"="+library)
	s.must(t, 2, "refusals", libraryVar+"="+library)
}
