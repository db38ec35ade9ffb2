package backend

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/symgrad/symgrad/dist/launch"
)

// A program that asks for no GPU loads nothing of NVIDIA's, whatever the machine has.
func TestHostWorldsLoadNoLibraryForGPUs(t *testing.T) {
	loaded := func() []string {
		maps, err := os.ReadFile("/proc/self/maps")
		if err != nil {
			t.Fatal(err)
		}
		var found []string
		for line := range strings.Lines(string(maps)) {
			for _, name := range []string{"libcuda", "libnccl", "libnvshmem", "libnvrtc", "libnvidia"} {
				if strings.Contains(line, "/"+name) {
					found = append(found, strings.TrimSpace(line))
				}
			}
		}
		return found
	}
	if before := loaded(); len(before) > 0 {
		t.Skipf("another test has loaded some: %s", before[0])
	}
	env := launch.Env{Size: 1, LocalSize: 1, Launcher: launch.None}
	for _, cfg := range []Config{{}, {Backend: SHM}, {Device: HostDevice}} {
		cfg.Env = &env
		_ = cfg.Choices(env)
		w, err := Open(context.Background(), cfg)
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(sumOfRanks(w), w.Close()); err != nil {
			t.Error(err)
		}
	}
	if after := loaded(); len(after) > 0 {
		t.Errorf("loaded: %s", strings.Join(after, "\n"))
	}
}
