package direct

import "testing"

func TestCardsComeBackAsTheyWere(t *testing.T) {
	c := partInfo{pid: 7, index: 3, token: [16]byte{1, 2}, uuid: [16]byte{15: 9}, handle: [64]byte{0: 5, 63: 6}, address: 0xfedcba9876543210, bytes: 1 << 40}
	b := c.encode()
	if len(b) != partBytes {
		t.Fatalf("%d B, want %d", len(b), partBytes)
	}
	if got := decodePart(b); got != c {
		t.Errorf("%+v, want %+v", got, c)
	}
}

func TestProcessesAreToldApart(t *testing.T) {
	a, b := partInfo{pid: 1, token: [16]byte{1}}, partInfo{pid: 1, token: [16]byte{2}}
	if a.sameProcess(&b) {
		t.Error("two containers' first processes are taken for one")
	}
	b.token = a.token
	if !a.sameProcess(&b) {
		t.Error("one process is taken for two")
	}
	if first := token(); first != token() || first == [16]byte{} {
		t.Error("a process has no lasting token")
	}
}
