package shm

import (
	"os"
	"path/filepath"
	"testing"
)

func TestStoresBypassTheCacheLaterWhereItIsLarge(t *testing.T) {
	path := filepath.Join(t.TempDir(), "size")
	if got := streamsFrom(path); got != streamApart {
		t.Errorf("without a size: from %d on, want %d", got, streamApart)
	}
	for text, want := range map[string]int{
		"": streamApart, "large\n": streamApart, "32768K\n": streamApart, "65535K\n": streamApart, "65536K\n": streamRoomy, "491520K": streamRoomy,
	} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := streamsFrom(path); got != want {
			t.Errorf("%q: from %d on, want %d", text, got, want)
		}
	}
}
