package checkpoint

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/symgrad/symgrad/tensor"
)

// again reads a file with the reference library and writes it again.
const again = `
import sys
from safetensors import safe_open
from safetensors.torch import load_file, save_file
with safe_open(sys.argv[1], framework="pt") as f:
    metadata = f.metadata()
save_file(load_file(sys.argv[1]), sys.argv[2], metadata)
`

// The reference library reads files of WriteFile, and writes the same bytes.
func TestReferenceLibraryWritesTheSame(t *testing.T) {
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("there is no python3")
	}
	if out, err := exec.Command(python, "-c", "from safetensors.torch import load_file, save_file").CombinedOutput(); err != nil {
		t.Skipf("python3 has no safetensors with torch: %s", bytes.TrimSpace(out[max(0, len(out)-60):]))
	}
	dir := t.TempDir()
	ours, theirs, script := filepath.Join(dir, "ours"), filepath.Join(dir, "theirs"), filepath.Join(dir, "again.py")
	var all []NamedTensor
	for i, dt := range tensor.DTypes() {
		d := Tensor{Name: "t" + dt.String(), DType: dt, Shape: []int{3, i + 1}}
		all = append(all, NamedTensor{Name: d.Name, Shape: d.Shape, Data: elements(d, 1, 0, d.Len())})
	}
	all = append(all, NamedTensor{Name: "bool/é\"", Type: Bool, Shape: []int{3}, Data: tensor.Of([]uint8{1, 0, 1})},
		NamedTensor{Name: "scalar", Shape: nil, Data: tensor.Of([]float32{1})}, NamedTensor{Name: "empty", Shape: []int{0, 2}, Data: tensor.Of([]int16{})})
	if err := WriteFile(ours, map[string]string{"format": "pt"}, all); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(script, []byte(again), 0o666); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command(python, script, ours, theirs).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	a, errA := os.ReadFile(ours)
	b, errB := os.ReadFile(theirs)
	if errA != nil || errB != nil || !bytes.Equal(a, b) {
		t.Errorf("%v %v\n%q\n%q", errA, errB, a, b)
	}
}
