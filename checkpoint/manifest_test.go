package checkpoint

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

// aManifest returns a valid manifest.
func aManifest() *Manifest {
	return &Manifest{
		Format: Format, Version: Version, Step: 3, WorldSize: 2, Config: "a: <b>\n", Solver: Solver{Name: "sgd", Steps: 3},
		Sampler: json.RawMessage(`{"next":[1,2]}`), Random: []json.RawMessage{json.RawMessage("1"), nil},
		Files: []FileInfo{
			{Name: "rank-00000-of-00002.safetensors", Rank: 0, Bytes: 100, CRC32C: "00000000"},
			{Name: "rank-00001-of-00002.safetensors", Rank: 1, Bytes: 100, CRC32C: "0000000a"},
		},
		Tensors: []TensorInfo{
			{Name: "b", Role: Param, DType: "f32", Shape: []int{}, Runs: []RunInfo{{1, "b", 0, 1}}},
			{Name: "w", Role: Param, DType: "f32", Shape: []int{4}, Runs: []RunInfo{{0, "w[0:2]", 0, 2}, {1, "w[2:4]", 2, 2}}},
		},
	}
}

func TestManifestRoundTrip(t *testing.T) {
	text, err := aManifest().encode()
	if err != nil {
		t.Fatal(err)
	}
	got, err := decodeManifest(text)
	if err != nil || !reflect.DeepEqual(got, aManifest()) {
		t.Errorf("%+v, %v", got, err)
	}
	var plain struct {
		Step   int    `json:"step"`
		Config string `json:"config"`
		SHA256 string `json:"sha256"`
	}
	if err := json.Unmarshal(text, &plain); err != nil || plain.Step != 3 || plain.Config != "a: <b>\n" || len(plain.SHA256) != 64 || !strings.Contains(string(text), "<b>") {
		t.Errorf("it is no plain JSON: %v\n%s", err, text)
	}
}

func TestManifestsThatContradictThemselves(t *testing.T) {
	for want, edit := range map[string]func(m *Manifest){
		`format "x", want "symgrad-checkpoint"`:                func(m *Manifest) { m.Format = "x" },
		"version 2; this program reads version 1":              func(m *Manifest) { m.Version = 2 },
		"step -1, 2 ranks, 2 files":                            func(m *Manifest) { m.Step = -1 },
		"step 3, 0 ranks":                                      func(m *Manifest) { m.WorldSize = 0 },
		"2 ranks, 0 files":                                     func(m *Manifest) { m.Files = nil },
		"1 ranks, 2 files":                                     func(m *Manifest) { m.WorldSize = 1 },
		"file 1: {Name:../x":                                   func(m *Manifest) { m.Files[1].Name = "../x" },
		"file 1: {Name:rank-00001":                             func(m *Manifest) { m.Files[1].Rank = 0 },
		"tensor b is listed twice, or tensors are not sorted":  func(m *Manifest) { m.Tensors[1].Name = "b" },
		"tensor a is listed twice, or tensors are not sorted":  func(m *Manifest) { m.Tensors[1].Name = "a" },
		`tensor b: unknown dtype "f33"`:                        func(m *Manifest) { m.Tensors[0].DType = "f33" },
		`tensor b: unknown role "x"`:                           func(m *Manifest) { m.Tensors[0].Role = "x" },
		"tensor w: file number 2 of 2":                         func(m *Manifest) { m.Tensors[1].Runs[0].File = 2 },
		"tensor w: a run of -2 elements":                       func(m *Manifest) { m.Tensors[1].Runs[0].Len = -2 },
		"tensor w: a run of 9223372036854775807 elements from": func(m *Manifest) { m.Tensors[1].Runs[1].Len = 1<<63 - 1 },
		"tensor w: elements 1 to 2 of 4 are missing":           func(m *Manifest) { m.Tensors[1].Runs[0].Len = 1 },
		"tensor w: elements from 2 on are stored twice":        func(m *Manifest) { m.Tensors[1].Runs[0].Len = 3 },
		"tensor w: runs for 2 of its 4 elements":               func(m *Manifest) { m.Tensors[1].Runs = m.Tensors[1].Runs[:1] },
		"tensor b: runs for 0 of its 1 elements":               func(m *Manifest) { m.Tensors[0].Runs = nil },
	} {
		m := aManifest()
		edit(m)
		text, err := m.encode()
		if err != nil {
			t.Fatal(err)
		}
		_, err = decodeManifest(text)
		sentinel := ErrCorrupt
		if strings.HasPrefix(want, "version") {
			sentinel = ErrUnsupported
		}
		if !errors.Is(err, sentinel) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

// A checkpoint of a later version stops Open: an older one would be a surprise.
func TestLaterVersionsAreNotPassedOver(t *testing.T) {
	o := Options{Dir: t.TempDir(), Size: 1}
	mustSave(t, o, 1)
	mustSave(t, o, 2)
	m := aManifest()
	m.Version = 2
	text, err := m.encode()
	if err == nil {
		err = os.WriteFile(filepath.Join(o.Dir, "step-00000002", "manifest.json"), text, 0o666)
	}
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Open(o.Dir); !errors.Is(err, ErrUnsupported) {
		t.Error(err)
	}
}

// No text makes the reader of manifests panic.
func FuzzDecodeManifest(f *testing.F) {
	text, err := aManifest().encode()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(text)
	f.Add([]byte(sealBefore + strings.Repeat("0", 64) + sealAfter))
	f.Fuzz(func(t *testing.T, p []byte) {
		if m, err := decodeManifest(p); err == nil && m.validate() != nil {
			t.Errorf("%s", p)
		}
		m := &Manifest{} // past the hash, which a fuzzer does not guess
		if json.Unmarshal(p, m) == nil && m.validate() == nil {
			if _, err := m.encode(); err != nil {
				t.Error(err)
			}
		}
	})
}
