package checkpoint

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/symgrad/symgrad/tensor"
)

// Format and Version are written to manifests. A reader rejects later versions.
const (
	Format  = "symgrad-checkpoint"
	Version = 1
)

const manifestName = "manifest.json"

// maxManifest is the largest number of bytes of a manifest, so that a damaged or planted one costs
// little memory. A tensor takes about 300 B and each further run 130: the limit allows 100,000
// tensors or 500,000 runs.
const maxManifest = 64 << 20

// Manifest is manifest.json: a checkpoint without the elements.
type Manifest struct {
	Format     string                     `json:"format"`
	Version    int                        `json:"version"`
	Step       int                        `json:"step"`
	WorldSize  int                        `json:"world_size"`
	Stage      int                        `json:"stage"`
	Config     string                     `json:"config"`
	ConfigHash string                     `json:"config_hash"`
	PlanHash   string                     `json:"plan_hash"`
	Solver     Solver                     `json:"solver"`
	Sampler    json.RawMessage            `json:"sampler,omitempty"`
	Random     []json.RawMessage          `json:"random,omitempty"` // one for each rank that wrote a file
	Scaler     json.RawMessage            `json:"scaler,omitempty"`
	Extra      map[string]json.RawMessage `json:"extra,omitempty"`
	Files      []FileInfo                 `json:"files"`
	Tensors    []TensorInfo               `json:"tensors"` // by name
}

// FileInfo describes a file of a checkpoint.
type FileInfo struct {
	Name   string `json:"name"`
	Rank   int    `json:"rank"` // that wrote the file
	Bytes  int64  `json:"bytes"`
	CRC32C string `json:"crc32c"` // of all bytes, 8 hex digits
}

// TensorInfo is a logical tensor and the files with its elements.
type TensorInfo struct {
	Name  string    `json:"name"`
	Role  Role      `json:"role"`
	Param string    `json:"param,omitempty"`
	Slot  string    `json:"slot,omitempty"`
	DType string    `json:"dtype"`
	Shape []int     `json:"shape"`
	Runs  []RunInfo `json:"runs"` // by offset; together they have each element once
}

// RunInfo is elements Offset to Offset+Len of a tensor: the entry named Entry of file number File.
type RunInfo struct {
	File   int    `json:"file"`
	Entry  string `json:"entry"`
	Offset int    `json:"offset"`
	Len    int    `json:"len"`
}

// Tensor returns the description without the runs.
//
// Errors: ErrCorrupt for an invalid dtype or shape.
func (t *TensorInfo) Tensor() (Tensor, error) {
	dt, err := tensor.ParseDType(t.DType)
	if err != nil {
		return Tensor{}, fmt.Errorf("%w: tensor %s: %w", ErrCorrupt, t.Name, err)
	}
	d := Tensor{Name: t.Name, Role: t.Role, Param: t.Param, Slot: t.Slot, DType: dt, Shape: slices.Clone(t.Shape)}
	if err := d.validate(); err != nil {
		return Tensor{}, fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	return d, nil
}

// infoOf returns a description without runs.
func infoOf(t Tensor) TensorInfo {
	return TensorInfo{Name: t.Name, Role: t.Role, Param: t.Param, Slot: t.Slot, DType: t.DType.String(), Shape: append([]int{}, t.Shape...)}
}

// sealBefore and sealAfter surround the hash at the end of a manifest.
const (
	sealBefore = ",\n  \"sha256\": \""
	sealAfter  = "\"\n}\n"
)

// encode returns the text of the file: JSON whose last member is the hash of the text before it.
func (m *Manifest) encode() ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if err := enc.Encode(m); err != nil {
		return nil, fmt.Errorf("%w: manifest: %w", ErrInvalid, err)
	}
	text := bytes.TrimSuffix(b.Bytes(), []byte("\n}\n"))
	if len(text) > maxManifest-256 { // leaves room for the hash
		return nil, fmt.Errorf("%w: a manifest of %d B for %d tensors; readers take %d B at most: shard less, or use fewer tensors", ErrInvalid, len(text), len(m.Tensors), maxManifest)
	}
	sum := sha256.Sum256(text)
	return slices.Concat(text, []byte(sealBefore), []byte(hex.EncodeToString(sum[:])), []byte(sealAfter)), nil
}

// decodeManifest is the inverse of encode.
//
// Errors: ErrCorrupt for a text that encode did not write or that contradicts itself;
// ErrUnsupported for a later version.
func decodeManifest(text []byte) (*Manifest, error) {
	at := len(text) - len(sealBefore) - 2*sha256.Size - len(sealAfter)
	if at < 0 || string(text[at:at+len(sealBefore)]) != sealBefore || !bytes.HasSuffix(text, []byte(sealAfter)) {
		return nil, fmt.Errorf("%w: %s: it does not end with its hash: it is cut short or was edited", ErrCorrupt, manifestName)
	}
	sum := sha256.Sum256(text[:at])
	if got := string(text[at+len(sealBefore) : len(text)-len(sealAfter)]); got != hex.EncodeToString(sum[:]) {
		return nil, fmt.Errorf("%w: %s: its hash is %s and should be %s", ErrCorrupt, manifestName, got, hex.EncodeToString(sum[:]))
	}
	body := append(slices.Clone(text[:at]), "\n}"...)
	var head struct {
		Format  string `json:"format"`
		Version int    `json:"version"`
	}
	if err := json.Unmarshal(body, &head); err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrCorrupt, manifestName, err)
	}
	switch {
	case head.Format != Format:
		return nil, fmt.Errorf("%w: %s: format %q, want %q", ErrCorrupt, manifestName, head.Format, Format)
	case head.Version != Version:
		return nil, fmt.Errorf("%w: %s: version %d; this program reads version %d", ErrUnsupported, manifestName, head.Version, Version)
	}
	m := &Manifest{}
	d := json.NewDecoder(bytes.NewReader(body))
	d.DisallowUnknownFields()
	if err := d.Decode(m); err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrCorrupt, manifestName, err)
	}
	if err := m.validate(); err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrCorrupt, manifestName, err)
	}
	m.compact()
	return m, nil
}

// compact removes indentation from the raw JSON of programs.
func (m *Manifest) compact() {
	one := func(raw json.RawMessage) json.RawMessage {
		var b bytes.Buffer
		if json.Compact(&b, raw) != nil || b.String() == "null" {
			return nil
		}
		return b.Bytes()
	}
	m.Sampler, m.Scaler = one(m.Sampler), one(m.Scaler)
	for i := range m.Random {
		m.Random[i] = one(m.Random[i])
	}
	for k, raw := range m.Extra { // independent of the order
		m.Extra[k] = one(raw)
	}
}

// validate checks that the parts fit together: unique names, possible files, runs that cover each
// tensor.
func (m *Manifest) validate() error {
	if m.Step < 0 || m.WorldSize < 1 || len(m.Files) == 0 || len(m.Files) > m.WorldSize {
		return fmt.Errorf("step %d, %d ranks, %d files", m.Step, m.WorldSize, len(m.Files))
	}
	names := map[string]bool{}
	for i, f := range m.Files {
		if f.Name != fileName(f.Rank, len(m.Files), m.sharded()) || f.Rank != i || f.Bytes < 8 || len(f.CRC32C) != 8 {
			return fmt.Errorf("file %d: %+v", i, f)
		}
	}
	last := ""
	for i := range m.Tensors {
		t := &m.Tensors[i]
		if names[t.Name] || i > 0 && t.Name < last {
			return fmt.Errorf("tensor %s is listed twice, or tensors are not sorted by name", t.Name)
		}
		names[t.Name], last = true, t.Name
		d, err := t.Tensor()
		if err != nil {
			return err
		}
		if err := covers(d, t.Runs, len(m.Files)); err != nil {
			return err
		}
	}
	return nil
}

// sharded reports whether each rank wrote a file.
func (m *Manifest) sharded() bool {
	return len(m.Files) > 0 && strings.HasPrefix(m.Files[0].Name, "rank-")
}

// covers checks that runs, sorted by offset, have each element of t once.
func covers(t Tensor, runs []RunInfo, files int) error {
	end := 0
	for _, r := range runs {
		switch {
		case r.File < 0 || r.File >= files:
			return fmt.Errorf("tensor %s: file number %d of %d", t.Name, r.File, files)
		case r.Len < 0 || r.Offset > math.MaxInt-r.Len:
			return fmt.Errorf("tensor %s: a run of %d elements from %d", t.Name, r.Len, r.Offset)
		case r.Offset < end:
			return fmt.Errorf("tensor %s: elements from %d on are stored twice, the second time in file %d", t.Name, r.Offset, r.File)
		case r.Offset > end:
			return fmt.Errorf("tensor %s: elements %d to %d of %d are missing", t.Name, end, r.Offset, t.Len())
		}
		end = r.Offset + r.Len
	}
	if end != t.Len() || len(runs) == 0 {
		return fmt.Errorf("tensor %s: runs for %d of its %d elements", t.Name, end, t.Len())
	}
	return nil
}

// fileName returns the name of a rank's file.
func fileName(rank, files int, sharded bool) string {
	if !sharded {
		return "model.safetensors"
	}
	return fmt.Sprintf("rank-%05d-of-%05d.safetensors", rank, files)
}
