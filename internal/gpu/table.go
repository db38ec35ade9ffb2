package gpu

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/bits"
	"slices"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/tensor"
)

// tableVersion is the version of the table format. It rises when older programs would misread a
// newer table.
const tableVersion = 1

// Table says which engine was measured as the fastest, and which to use for other operations.
type Table struct {
	Version   int       `json:"version"`
	Machine   string    `json:"machine"` // name of the GPU; "" for any
	Driver    int       `json:"driver"`  // CUDA version of the driver; 0 if unknown
	Libraries []Library `json:"libraries"`
	Rows      []Row     `json:"rows"`
	Rules     []Rule    `json:"rules"` // the first that fits is used for operations without a row
}

// Library is a measured library.
type Library struct {
	Name    string `json:"name"`
	Version string `json:"version"`
}

// Row is one measurement: an operation, and its time with every engine that could do it.
type Row struct {
	Kind      string   `json:"kind"`
	DType     string   `json:"dtype"`     // "" if the operation does not reduce
	Reduction string   `json:"reduction"` // a class: "", "sum", "other", "scaled"
	Symmetric bool     `json:"symmetric"`
	Ranks     int      `json:"ranks"`
	Hosts     int      `json:"hosts,omitempty"` // 0 means 1
	Bytes     int64    `json:"bytes"`           // a power of two; see Size
	Timings   []Timing `json:"timings"`
}

// Timing is the time of an operation on the slowest rank.
type Timing struct {
	Engine       string  `json:"engine"`
	Microseconds float64 `json:"microseconds"`
}

// Rule is an order of engines for operations without a measured row: see dispatcher.measured.
type Rule struct {
	Kinds   []string `json:"kinds,omitempty"` // "broadcast", ...; none for all operations
	Ranks   int      `json:"ranks"`           // 0 for any number
	Hosts   int      `json:"hosts,omitempty"` // 0 means 1
	Bytes   int64    `json:"bytes"`           // largest size; 0 for any
	Engines []string `json:"engines"`
}

// Class returns the class of a reduction for speed and library support: "" for none, "sum", "other"
// for products and extremes, "scaled" for averages and sums with factors.
func Class(op *dist.Op) string {
	if !op.Kind.Reduces() {
		return ""
	}
	switch op.Red.Kind {
	case dist.RedSum:
		return "sum"
	case dist.RedAvg, dist.RedPreMulSum:
		return "scaled"
	}
	return "other"
}

// Size returns the size by which tables look up op among n ranks, equal on all of them. It is the
// bytes of the whole vector, which a scattering or gathering operation divides among the ranks.
func Size(op *dist.Op, n int) int64 {
	size := int64(op.Count) * int64(op.DType().Size())
	switch op.Kind {
	case dist.KindAllGather, dist.KindReduceScatter, dist.KindAllToAll, dist.KindGather, dist.KindScatter:
		return size * int64(n)
	}
	return size
}

// sizeClass returns the exponent of the smallest power of two that is at least size.
func sizeClass(size int64) int {
	if size <= 1 {
		return 0
	}
	return bits.Len64(uint64(size - 1))
}

// ReadTable reads and validates a table.
//
// Errors: dist.ErrInvalid, with the row, for errors of Validate and unknown fields.
func ReadTable(r io.Reader) (*Table, error) {
	dec := json.NewDecoder(r)
	dec.DisallowUnknownFields()
	var t Table
	if err := dec.Decode(&t); err != nil {
		return nil, fmt.Errorf("%w: table of engines: %w", dist.ErrInvalid, err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("%w: table of engines: data after its end", dist.ErrInvalid)
	}
	if err := t.Validate(); err != nil {
		return nil, err
	}
	return &t, nil
}

// Write writes t to w. Equal tables give equal files.
func (t *Table) Write(w io.Writer) error {
	b, err := json.MarshalIndent(t, "", "\t")
	if err != nil {
		return fmt.Errorf("table of engines: %w", err)
	}
	_, err = w.Write(append(b, '\n'))
	return err
}

// Hash returns a digest of all of t.
func (t *Table) Hash() string {
	var b bytes.Buffer
	_ = t.Write(&b) // neither the encoder nor the buffer can fail
	sum := sha256.Sum256(b.Bytes())
	return hex.EncodeToString(sum[:])
}

// Validate reports the first mistake in t.
//
// Errors: dist.ErrInvalid.
func (t *Table) Validate() error {
	if t.Version != tableVersion {
		return fmt.Errorf("%w: table of engines of version %d; this program reads version %d: measure again with symgrad tune",
			dist.ErrInvalid, t.Version, tableVersion)
	}
	seen := map[rowKey]int{}
	for i := range t.Rows {
		k, err := t.Rows[i].key()
		if err == nil {
			if j, ok := seen[k]; ok {
				err = fmt.Errorf("the same operation as row %d", j)
			}
			seen[k] = i
		}
		if err != nil {
			return fmt.Errorf("%w: table of engines, row %d: %w", dist.ErrInvalid, i, err)
		}
	}
	for i, r := range t.Rules {
		if r.Ranks < 0 || r.Hosts < 0 || r.Bytes < 0 || len(r.Engines) == 0 || slices.Contains(r.Engines, "") {
			return fmt.Errorf("%w: table of engines, rule %d: ranks, hosts and bytes must not be negative, and engines have names",
				dist.ErrInvalid, i)
		}
		if _, err := r.kinds(); err != nil {
			return fmt.Errorf("%w: table of engines, rule %d: %w", dist.ErrInvalid, i, err)
		}
	}
	return nil
}

// kinds returns the operations that r is for; nil for all.
func (r *Rule) kinds() ([]dist.Kind, error) {
	var kinds []dist.Kind
	for _, name := range r.Kinds {
		kind, err := collective(name)
		if err != nil {
			return nil, err
		}
		kinds = append(kinds, kind)
	}
	return kinds, nil
}

// collective returns the operation of a name.
func collective(name string) (dist.Kind, error) {
	for kind := dist.KindAllReduce; kind <= dist.KindSync; kind++ {
		if kind.String() == name && !kind.PointToPoint() {
			return kind, nil
		}
	}
	return dist.KindInvalid, fmt.Errorf("unknown collective %q", name)
}

// rowKey is the key of a row in lookups.
type rowKey struct {
	kind      dist.Kind
	dtype     tensor.DType // Invalid for any
	class     string
	symmetric bool
	ranks     int
	hosts     int
	size      int // see sizeClass
}

func (r *Row) key() (rowKey, error) {
	k := rowKey{class: r.Reduction, symmetric: r.Symmetric, ranks: r.Ranks, hosts: max(r.Hosts, 1), size: sizeClass(r.Bytes)}
	var err error
	k.kind, err = collective(r.Kind)
	if r.DType != "" && err == nil {
		k.dtype, err = tensor.ParseDType(r.DType)
	}
	switch {
	case err != nil:
	case k.kind.Reduces() != (r.DType != "") || k.kind.Reduces() != (r.Reduction != ""):
		err = fmt.Errorf("dtype %q and reduction %q of %s, which reduces: %v", r.DType, r.Reduction, r.Kind, k.kind.Reduces())
	case !slices.Contains([]string{"", "sum", "other", "scaled"}, r.Reduction):
		err = fmt.Errorf("unknown class of reductions %q: use one of sum, other, scaled", r.Reduction)
	case r.Ranks < 1:
		err = fmt.Errorf("%d ranks", r.Ranks)
	case r.Hosts < 0 || r.Hosts > r.Ranks:
		err = fmt.Errorf("%d hosts of %d ranks", r.Hosts, r.Ranks)
	case r.Bytes < 1 || r.Bytes&(r.Bytes-1) != 0:
		err = fmt.Errorf("%d bytes is not a power of two", r.Bytes)
	case len(r.Timings) == 0:
		err = errors.New("no timings")
	}
	for _, m := range r.Timings {
		if err == nil && (m.Engine == "" || !(m.Microseconds > 0)) {
			err = fmt.Errorf("engine %q took %v microseconds", m.Engine, m.Microseconds)
		}
	}
	return k, err
}

// fastest returns the engines of a row, the fastest first; equal ones by name.
func (r *Row) fastest() []string {
	sorted := slices.Clone(r.Timings)
	slices.SortStableFunc(sorted, func(a, b Timing) int {
		switch {
		case a.Microseconds < b.Microseconds:
			return -1
		case a.Microseconds > b.Microseconds:
			return 1
		case a.Engine < b.Engine:
			return -1
		case a.Engine > b.Engine:
			return 1
		}
		return 0
	})
	names := make([]string, len(sorted))
	for i, m := range sorted {
		names[i] = m.Engine
	}
	return names
}

// Fits reports whether t was measured on such a machine. Rules apply on all machines.
func (t *Table) Fits(machine string) bool { return t.Machine == "" || t.Machine == machine }
