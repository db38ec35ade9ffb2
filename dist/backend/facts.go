package backend

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/internal/dl"
	"github.com/symgrad/symgrad/internal/gpu"
	"github.com/symgrad/symgrad/internal/gpu/cuda"
)

// gpuID identifies a GPU by the driver's ids.
type gpuID struct {
	UUID string `json:"uuid"` // "GPU-..." as nvidia-smi prints it
	PCI  string `json:"pci"`
	Name string `json:"name"`
}

// String returns "GPU-... (0000:1b:00.0)".
func (g gpuID) String() string { return fmt.Sprintf("%s (%s)", g.UUID, g.PCI) }

// facts is the data that ranks compare before they use a GPU.
type facts struct {
	Backend string `json:"backend"`
	Engine  string `json:"engine"`
	MaxCTAs int    `json:"max_ctas"`
	GPU     gpuID  `json:"gpu"`     // of the rank
	Count   int    `json:"count"`   // number of GPUs that it sees
	Visible string `json:"visible"` // why it sees those
	Driver  int    `json:"driver"`  // CUDA version
}

// factsBytes is the size of encoded facts, and visibleBytes the most of Visible.
const (
	factsBytes   = 2048
	visibleBytes = 512
)

func (f facts) encode() ([]byte, error) {
	if len(f.Visible) > visibleBytes {
		f.Visible = strings.ToValidUTF8(f.Visible[:visibleBytes], "") + "..."
	}
	text, err := json.Marshal(f)
	if err == nil && len(text) > factsBytes {
		err = fmt.Errorf("%w: facts of %d B", dist.ErrInvalid, len(text))
	}
	if err != nil {
		return make([]byte, factsBytes), err
	}
	return append(text, strings.Repeat(" ", factsBytes-len(text))...), nil // JSON ends with any space
}

func decodeFacts(lines [][]byte) ([]facts, error) {
	all := make([]facts, len(lines))
	for r, line := range lines {
		if err := json.Unmarshal(line, &all[r]); err != nil {
			return nil, fmt.Errorf("facts of rank %d: %w", r, err)
		}
	}
	return all, nil
}

// judge returns nil if the ranks of m fit together. Those of one host have the same driver, and a
// GPU each.
//
// Errors: dist.ErrMismatch, dist.ErrDevice.
func judge(all []facts, m *gpu.Member) error {
	local := 0 // the first rank of this host
	for local < len(all)-1 && !m.Near(local) {
		local++
	}
	for r, f := range all {
		first := all[0]
		switch {
		case f.Backend != first.Backend:
			return fmt.Errorf("%w on the backend: rank 0 opens %s, rank %d %s", dist.ErrMismatch, first.Backend, r, f.Backend)
		case f.Engine != first.Engine:
			return fmt.Errorf("%w on the engine: rank 0 has %q forced, rank %d %q", dist.ErrMismatch, first.Engine, r, f.Engine)
		case f.MaxCTAs != first.MaxCTAs:
			return fmt.Errorf("%w on the most blocks of an operation: rank 0 has %d, rank %d %d", dist.ErrMismatch, first.MaxCTAs, r, f.MaxCTAs)
		case m.Near(r) && f.Driver != all[local].Driver:
			return fmt.Errorf("%w on the driver: rank %d has one for CUDA %s, rank %d for %s: do they share a host?", dist.ErrMismatch,
				local, version(all[local].Driver), r, version(f.Driver))
		}
		for q := range r {
			if all[q].GPU.UUID == f.GPU.UUID && m.OneHost(q, r) {
				return fmt.Errorf("%w: ranks %d and %d have one GPU, %v: %s", dist.ErrDevice, q, r, f.GPU, f.shared(len(all)))
			}
		}
	}
	return nil
}

// shared explains how a rank of size came to share its GPU, with the remedy.
func (f facts) shared(size int) string {
	switch {
	case f.Count < size:
		return fmt.Sprintf("a rank sees %d of them for %d ranks (%s): start no more ranks than GPUs, or show each rank one of its own",
			f.Count, size, f.Visible)
	default:
		return fmt.Sprintf("their local ranks are the same, or their lists differ (%s): start the ranks of a host by one launcher", f.Visible)
	}
}

// version formats 13000 as "13.0".
func version(v int) string { return fmt.Sprintf("%d.%d", v/1000, v%1000/10) }

// gpuQuery queries the driver about GPUs without making a context, which would take memory of
// theirs, and time.
type gpuQuery struct {
	driver *cuda.Driver
	calls  queryCalls
}

// queryCalls holds the driver functions of gpuQuery.
type queryCalls struct {
	device    func(dev *int32, ordinal int32) int32               `dl:"cuDeviceGet"`
	uuid      func(id *[16]byte, dev int32) int32                 `dl:"cuDeviceGetUuid_v2"`
	name      func(text *[256]byte, bytes int32, dev int32) int32 `dl:"cuDeviceGetName"`
	pci       func(text *[256]byte, bytes int32, dev int32) int32 `dl:"cuDeviceGetPCIBusId"`
	canAccess func(yes *int32, dev, peer int32) int32             `dl:"cuDeviceCanAccessPeer"`
}

// look returns the GPUs that the process sees, and a query for their properties.
func look(d *cuda.Driver) (*gpuQuery, []gpuID, error) {
	lib, err := dl.Open(dl.Search{Name: "libcuda", Override: d.Path()})
	if err != nil {
		return nil, nil, err
	}
	s := &gpuQuery{driver: d}
	if err := lib.Bind(&s.calls); err != nil {
		return nil, nil, err
	}
	ids := make([]gpuID, d.Count())
	for i := range ids {
		if ids[i], err = s.identify(i); err != nil {
			return nil, nil, fmt.Errorf("GPU %d: %w", i, err)
		}
	}
	return s, ids, nil
}

func (s *gpuQuery) identify(i int) (gpuID, error) {
	var dev int32
	var id [16]byte
	var name, pci [256]byte
	for _, call := range []struct {
		name string
		code func() int32
	}{
		{"cuDeviceGet", func() int32 { return s.calls.device(&dev, int32(i)) }},
		{"cuDeviceGetUuid_v2", func() int32 { return s.calls.uuid(&id, dev) }},
		{"cuDeviceGetName", func() int32 { return s.calls.name(&name, int32(len(name)), dev) }},
		{"cuDeviceGetPCIBusId", func() int32 { return s.calls.pci(&pci, int32(len(pci)), dev) }},
	} {
		if err := s.driver.Check(call.name, call.code()); err != nil {
			return gpuID{}, err
		}
	}
	return gpuID{UUID: uuidText(id), PCI: text(pci[:]), Name: text(name[:])}, nil
}

func text(b []byte) string {
	s, _, _ := strings.Cut(string(b), "\x00")
	return s
}

// uuidText formats an id as nvidia-smi does.
func uuidText(id [16]byte) string {
	return fmt.Sprintf("GPU-%x-%x-%x-%x-%x", id[:4], id[4:6], id[6:8], id[8:10], id[10:])
}

// reaches returns nil if GPU own can address the memory of all GPUs of this host's ranks that the
// process sees.
//
// Errors: dist.ErrUnsupported, naming both ranks.
func reaches(ids []gpuID, own, rank int, all []facts, near func(rank int) bool, can func(own, peer int) (bool, error)) error {
	for r, f := range all {
		peer := -1
		for i, id := range ids {
			if id.UUID == f.GPU.UUID {
				peer = i
			}
		}
		if peer < 0 || peer == own || !near(r) {
			continue // the driver does not report on hidden GPUs
		}
		yes, err := can(own, peer)
		if err != nil {
			return err
		}
		if !yes {
			return fmt.Errorf("%w: peer access is missing: rank %d on %v cannot address the memory of rank %d on %v: no NVLink is between them, and PCIe's peer access is off (IOMMU, ACS, or a virtual machine)",
				dist.ErrUnsupported, rank, ids[own], r, f.GPU)
		}
	}
	return nil
}

// can asks the driver whether GPU own can address the memory of GPU peer.
func (s *gpuQuery) can(own, peer int) (bool, error) {
	var a, b, yes int32
	for _, call := range []struct {
		name string
		code func() int32
	}{
		{"cuDeviceGet", func() int32 { return s.calls.device(&a, int32(own)) }},
		{"cuDeviceGet", func() int32 { return s.calls.device(&b, int32(peer)) }},
		{"cuDeviceCanAccessPeer", func() int32 { return s.calls.canAccess(&yes, a, b) }},
	} {
		if err := s.driver.Check(call.name, call.code()); err != nil {
			return false, fmt.Errorf("GPUs %d and %d: %w", own, peer, err)
		}
	}
	return yes != 0, nil
}
