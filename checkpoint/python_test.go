package checkpoint

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/symgrad/symgrad/tensor"
)

// again writes with the reference library what it has read, and prints names, types, shapes and metadata.
const again = `
import sys, json
from safetensors import serialize, deserialize
data = open(sys.argv[1], "rb").read()
names = {"F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16", "I64": "int64", "I32": "int32", "I16": "int16",
         "I8": "int8", "U64": "uint64", "U32": "uint32", "U16": "uint16", "U8": "uint8", "BOOL": "bool"}
tensors = {}
for name, t in deserialize(data):
    tensors[name] = {"dtype": names[t["dtype"]], "shape": t["shape"], "data": bytes(t["data"])}
n = int.from_bytes(data[:8], "little")
metadata = json.loads(data[8:8+n]).get("__metadata__")
open(sys.argv[2], "wb").write(serialize(tensors, metadata))
`

// The reference library reads what WriteFile writes, and writes the same bytes.
func TestReferenceLibraryWritesTheSame(t *testing.T) {
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("there is no python3")
	}
	if out, err := exec.Command(python, "-c", "from safetensors import serialize, deserialize").CombinedOutput(); err != nil {
		t.Skipf("python3 has no safetensors: %s", bytes.TrimSpace(out[max(0, len(out)-60):]))
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
