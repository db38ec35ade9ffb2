//go:build linux

package launch

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/symgrad/symgrad/dist"
)

// A handover may be larger than an argument or a variable of the environment: 128 KiB, see
// execve(2).
func TestEveryRankReadsTheHandover(t *testing.T) {
	for _, data := range [][]byte{nil, {}, []byte("a: 1\n"), bytes.Repeat([]byte("abcdefg\n"), 40_000)} {
		job, ranks := newStage(t).spawn(t.Context(), SpawnConfig{N: 3, Handover: data, Env: []string{"SYMGRAD_HANDOVER_FD=9"}})
		want := fmt.Sprintf("%v %d %x <nil>", data == nil, len(data), sha256.Sum256(data))
		for _, r := range ranks {
			for range 2 {
				if got := r.ask("handover"); got != want {
					t.Errorf("a rank read %s, want %s", got, want)
				}
			}
			r.tell("exit 0")
		}
		job.wait()
	}
}

func TestHandoverIsBounded(t *testing.T) {
	c := SpawnConfig{Program: "true", N: 1, Handover: make([]byte, MostHandover+1)}
	if err := c.Validate(); !errors.Is(err, dist.ErrInvalid) || !strings.Contains(err.Error(), "handover") {
		t.Errorf("got %v", err)
	}
}

func TestLostHandoverIsAnError(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	for _, fd := range []int{int(r.Fd()), 1 << 20} {
		if _, err := (Env{HandoverFD: fd}).Handover(); err == nil || !strings.Contains(err.Error(), "SYMGRAD_HANDOVER_FD") {
			t.Errorf("descriptor %d: %v", fd, err)
		}
	}
	if _, err := Detect([]string{"SYMGRAD_RANK=0", "SYMGRAD_WORLD_SIZE=1", "SYMGRAD_HANDOVER_FD=x"}); err == nil {
		t.Error("SYMGRAD_HANDOVER_FD=x is taken")
	}
}
