package nvshmem

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/internal/gpu/cuda"
)

// Values for zero fields of Config. They are NVSHMEM's own, except the number of teams: a program
// that splits its groups in several dimensions soon needs more than the 26 that NVSHMEM 3.4.5
// leaves free.
const (
	defaultMaxTeams    = 64
	defaultHeapBytes   = 128 << 30
	defaultGranularity = 512 << 20
	scratchBytes       = 512 << 10 // NVSHMEM_REDUCE_SCRATCH_SIZE; a reduce-scatter without NCCL can use half of it
)

// Bytes of each of the three parts of a team's staging area.
const (
	defaultStaging     = 16 << 20
	defaultTeamStaging = 2 << 20
	leastStaging       = 64 << 10
)

// mostTeams is the largest MaxTeams: idSet has one bit for each team. The library's own bit set,
// N_PSYNC_BYTES, grows with MaxTeams.
const mostTeams = 256

// Config says where NVSHMEM is and how it is started. The zero value searches for it and uses the
// defaults. It must be equal on all ranks, except for paths to equal files.
type Config struct {
	Path string   // of libnvshmem_host.so.3, or a bare soname; "" searches the loader's folders, then Dirs
	Dirs []string // folders and patterns to search, as from dl.Places; nil means dl.Places without an environment

	NCCL        string // path of the NCCL for NVSHMEM; "" means the loaded one, or the first found
	DisableNCCL bool   // reductions by NVSHMEM's own kernels, of one block

	Interface       string // network interface on which ranks meet; "" means lo, which is right on one host
	RemoteTransport string // between hosts: "ibrc", "ucx", ...; "" means none

	MaxTeams         int    // NVSHMEM's own 6, the world, and one for every list of ranks that becomes a group; 0 means 64
	HeapBytes        int64  // largest symmetric memory of a GPU; 0 means 128 GiB
	GranularityBytes int64  // growth step of symmetric memory; 0 means 512 MiB
	StagingBytes     int64  // of each of the 3 parts of the world's staging area; 0 means 16 MiB
	TeamStagingBytes int64  // the same for every other team; 0 means 2 MiB
	Debug            string // NVSHMEM_DEBUG: "WARN", "INFO", "TRACE"; "" leaves it as it is

	Compiler *cuda.Compiler // compiles the kernels of avg and premulsum, which NVSHMEM lacks; nil disables both
}

// Validate checks the fields that are not zero. Errors: dist.ErrInvalid.
func (c Config) Validate() error {
	for _, f := range []struct {
		name  string
		value int64
	}{
		{"MaxTeams", int64(c.MaxTeams)},
		{"HeapBytes", c.HeapBytes},
		{"GranularityBytes", c.GranularityBytes},
		{"StagingBytes", c.StagingBytes},
		{"TeamStagingBytes", c.TeamStagingBytes},
	} {
		if f.value < 0 {
			return fmt.Errorf("nvshmem: %w: %s is %d, want 0 or more", dist.ErrInvalid, f.name, f.value)
		}
	}
	d := c.defaults()
	switch {
	case d.MaxTeams <= ownTeams || d.MaxTeams > mostTeams:
		return fmt.Errorf("nvshmem: %w: MaxTeams is %d, want %d to %d: %d are NVSHMEM's own", dist.ErrInvalid, d.MaxTeams,
			ownTeams+1, mostTeams, ownTeams)
	case d.GranularityBytes&(d.GranularityBytes-1) != 0 || d.GranularityBytes < 2<<20:
		return fmt.Errorf("nvshmem: %w: GranularityBytes is %d, want a power of two of at least 2 MiB", dist.ErrInvalid, d.GranularityBytes)
	case d.StagingBytes < leastStaging || d.TeamStagingBytes < leastStaging:
		return fmt.Errorf("nvshmem: %w: StagingBytes is %d and TeamStagingBytes %d, want at least %d", dist.ErrInvalid,
			d.StagingBytes, d.TeamStagingBytes, leastStaging)
	case d.HeapBytes <= d.GranularityBytes:
		return fmt.Errorf("nvshmem: %w: HeapBytes is %d, want more than GranularityBytes, %d", dist.ErrInvalid, d.HeapBytes, d.GranularityBytes)
	}
	for _, text := range []string{c.Path, c.NCCL, c.Interface, c.RemoteTransport, c.Debug} {
		if strings.ContainsRune(text, 0) {
			return fmt.Errorf("nvshmem: %w: NUL byte in %q", dist.ErrInvalid, text)
		}
	}
	return nil
}

// defaults returns c with the default for every 0 and "" that has one.
func (c Config) defaults() Config {
	if c.MaxTeams == 0 {
		c.MaxTeams = defaultMaxTeams
	}
	if c.HeapBytes == 0 {
		c.HeapBytes = defaultHeapBytes
	}
	if c.GranularityBytes == 0 {
		c.GranularityBytes = defaultGranularity
	}
	if c.StagingBytes == 0 {
		c.StagingBytes = defaultStaging
	}
	if c.TeamStagingBytes == 0 {
		c.TeamStagingBytes = defaultTeamStaging
	}
	if c.Interface == "" {
		c.Interface = "lo"
	}
	if c.RemoteTransport == "" {
		c.RemoteTransport = "none"
	}
	c.StagingBytes = roundUp(c.StagingBytes, pageBytes)
	c.TeamStagingBytes = roundUp(c.TeamStagingBytes, pageBytes)
	return c
}

// variable is one environment variable of C.
type variable struct{ name, value string }

// environment returns the variables that this package relies on; c has its defaults. They override
// the process's environment. The library reads them once, when it starts.
func (c Config) environment(plugin string, withNCCL bool) []variable {
	vars := []variable{
		// NVLink multicast: never (see the package comment).
		{"NVSHMEM_DISABLE_NVLS", "1"},
		{"NCCL_NVLS_ENABLE", "0"},
		// Ranks connect when a team is made. By default they connect in the first operation of each
		// kind, which then blocks the host.
		{"NCCL_RUNTIME_CONNECT", "0"},
		{"NVSHMEM_REMOTE_TRANSPORT", c.RemoteTransport},
		{"NVSHMEM_BOOTSTRAP_UID_SOCK_IFNAME", c.Interface},
		{"NVSHMEM_BOOTSTRAP_UID_PLUGIN", plugin},
		{"NVSHMEM_DISABLE_NCCL", flag(!withNCCL)},
		{"NVSHMEM_MAX_TEAMS", strconv.Itoa(c.MaxTeams)},
		{"NVSHMEM_MAX_MEMORY_PER_GPU", strconv.FormatInt(c.HeapBytes, 10)},
		{"NVSHMEM_CUMEM_GRANULARITY", strconv.FormatInt(c.GranularityBytes, 10)},
		{"NVSHMEM_REDUCE_SCRATCH_SIZE", strconv.Itoa(scratchBytes)},
		// The heap that grows by mapping: allocRequest and grant assume its accounting.
		{"NVSHMEM_DISABLE_CUDA_VMM", "0"},
		{"NVSHMEM_HEAP_KIND", "DEVICE"},
	}
	if c.Debug != "" {
		vars = append(vars, variable{"NVSHMEM_DEBUG", c.Debug})
	}
	return vars
}

// offered are variables that are set only if the process's environment lacks them. Without a
// transport between hosts the proxy thread only polls for kernels that want to end the job, which
// takes a core of each rank (see the package comment).
var offered = []variable{{"NVSHMEM_DISABLE_LOCAL_ONLY_PROXY", "1"}}

func flag(on bool) string {
	if on {
		return "1"
	}
	return "0"
}

// roundUp rounds v up to a multiple of unit, a power of two.
func roundUp(v, unit int64) int64 { return (v + unit - 1) &^ (unit - 1) }
