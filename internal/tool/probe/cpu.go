package probe

import (
	"path"
	"runtime"
	"slices"
	"strconv"
	"strings"
)

// CPU has the processors and the part of them that this process may use.
type CPU struct {
	Model     string   `json:"model"`
	ISA       []string `json:"isa"`        // extensions that this processor has, of those used by kernels here or in BLAS libraries
	Online    int      `json:"online"`     // logical processors of the machine
	Allowed   int      `json:"allowed"`    // logical processors in the affinity mask of this process
	Affinity  string   `json:"affinity"`   // the mask as a list: "0-3,8"
	Quota     float64  `json:"quota"`      // processor time that the control groups grant, in processors; 0 means no limit
	Usable    int      `json:"usable"`     // minimum of Allowed and Quota, at least 1
	NUMANodes []NUMA   `json:"numa_nodes"` // with memory or processors
	Caches    []Cache  `json:"caches"`     // of the first processor
}

// NUMA is a NUMA node: processors and their local memory.
type NUMA struct {
	ID          int    `json:"id"`
	CPUs        string `json:"cpus"` // "0-15,32-47"
	MemoryBytes int64  `json:"memory_bytes"`
}

// Cache is one cache.
type Cache struct {
	Level    int    `json:"level"`
	Type     string `json:"type"` // "Data", "Instruction", "Unified"
	Bytes    int64  `json:"bytes"`
	SharedBy int    `json:"shared_by"` // logical processors
}

// interesting are the reported extensions, as named in /proc/cpuinfo for x86 and arm64.
var interesting = []string{
	"avx", "avx2", "fma", "f16c",
	"avx512f", "avx512bw", "avx512vl", "avx512_bf16", "avx512_fp16", "amx_bf16",
	"asimd", "asimdhp", "bf16", "sve", "sve2",
}

// ReadCPU returns the processors of this machine.
func ReadCPU(r Roots) CPU {
	info := r.text("/proc/cpuinfo")
	status := r.text("/proc/self/status")
	c := CPU{
		Model:     field(info, "model name"),
		ISA:       []string{},
		Online:    countList(r.text("/sys/devices/system/cpu/online")),
		Affinity:  field(status, "Cpus_allowed_list"),
		NUMANodes: readNUMA(r),
		Caches:    readCaches(r),
	}
	flags := strings.Fields(field(info, "flags") + " " + field(info, "Features"))
	for _, name := range interesting {
		if slices.Contains(flags, name) {
			c.ISA = append(c.ISA, name)
		}
	}
	if c.Online == 0 { // no /sys
		c.Online = runtime.NumCPU()
	}
	if c.Allowed = countList(c.Affinity); c.Allowed == 0 {
		c.Allowed = runtime.NumCPU()
	}
	c.Quota = cpuQuota(r)
	c.Usable = c.Allowed
	if c.Quota > 0 {
		c.Usable = max(1, min(c.Allowed, int(c.Quota)))
	}
	return c
}

func readNUMA(r Roots) []NUMA {
	nodes := []NUMA{}
	for _, dir := range r.glob("/sys/devices/system/node/node[0-9]*") {
		id, err := strconv.Atoi(strings.TrimPrefix(path.Base(dir), "node"))
		if err != nil {
			continue
		}
		n := NUMA{ID: id, CPUs: r.text(dir + "/cpulist")}
		// "Node 0 MemTotal:       24684092 kB"
		n.MemoryBytes = kibibytes(r.text(dir+"/meminfo"), "Node "+strconv.Itoa(id)+" MemTotal")
		nodes = append(nodes, n)
	}
	slices.SortFunc(nodes, func(a, b NUMA) int { return a.ID - b.ID }) // node10 comes after node9
	return nodes
}

func readCaches(r Roots) []Cache {
	caches := []Cache{}
	for _, dir := range r.glob("/sys/devices/system/cpu/cpu0/cache/index[0-9]*") {
		level, ok := r.number(dir + "/level")
		if !ok {
			continue
		}
		caches = append(caches, Cache{
			Level: int(level), Type: r.text(dir + "/type"),
			Bytes:    suffixed(r.text(dir + "/size")),
			SharedBy: countList(r.text(dir + "/shared_cpu_list")),
		})
	}
	return caches
}

// suffixed parses sizes such as "48K" or "32M"; 0 if it is invalid.
func suffixed(size string) int64 {
	shift := 0
	digits := size
	for suffix, bits := range map[string]int{"K": 10, "M": 20, "G": 30} {
		if d, ok := strings.CutSuffix(size, suffix); ok {
			digits, shift = d, bits
		}
	}
	n, err := strconv.ParseInt(digits, 10, 64)
	if err != nil {
		return 0
	}
	return n << shift
}
