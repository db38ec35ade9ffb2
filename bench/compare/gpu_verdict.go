package main

import (
	"fmt"
	"math"
	"slices"
	"strings"
)

// gpuLine is one row of the comparison.
type gpuLine struct {
	gpuKey
	us     map[string]float64 // median of each engine with samples
	best   string             // fastest of gpuOthers; "" if there is none
	faster float64            // time of best over time of auto; NaN if either is missing
	host   float64            // time to queue auto on the host; 0 if unknown
}

// gpuTable has all rows of one mode, operation and dtype.
type gpuTable struct {
	mode, op, dtype string
	lines           []gpuLine // by size
}

// newGPUTables groups the samples by mode, operation and dtype, then by size.
func newGPUTables(s *gpuSession) []gpuTable {
	var tables []gpuTable
	for _, mode := range []string{modeQueued, modeGraph} {
		for _, op := range gpuOperations {
			for _, dtype := range []string{"f32", "bf16"} {
				t := gpuTable{mode: mode, op: op.name, dtype: dtype}
				t.fill(s)
				if len(t.lines) > 0 {
					tables = append(tables, t)
				}
			}
		}
	}
	return tables
}

func (t *gpuTable) fill(s *gpuSession) {
	times, hosts := map[int64]map[string][]float64{}, map[int64][]float64{}
	var sizes []int64
	for _, x := range s.samples {
		if x.mode != t.mode || x.op != t.op || x.dtype != t.dtype {
			continue
		}
		if times[x.bytes] == nil {
			times[x.bytes] = map[string][]float64{}
			sizes = append(sizes, x.bytes)
		}
		times[x.bytes][x.engine] = append(times[x.bytes][x.engine], x.us)
		if x.engine == auto && x.host > 0 {
			hosts[x.bytes] = append(hosts[x.bytes], x.host)
		}
	}
	slices.Sort(sizes)
	for _, bytes := range sizes {
		l := gpuLine{gpuKey: gpuKey{t.mode, t.op, t.dtype, bytes}, us: map[string]float64{}, faster: math.NaN()}
		for _, engine := range s.engines {
			if list := times[bytes][engine]; len(list) > 0 {
				l.us[engine] = median(list)
			}
		}
		for _, engine := range gpuOthers {
			if us, ok := l.us[engine]; ok && (l.best == "" || us < l.us[l.best]) {
				l.best = engine
			}
		}
		if list := hosts[bytes]; len(list) > 0 {
			l.host = median(list)
		}
		if us, ok := l.us[auto]; ok && l.best != "" {
			l.faster = l.us[l.best] / us
		}
		t.lines = append(t.lines, l)
	}
}

// gpuCriterion is a claim about the sizes from gpuLowest to most.
type gpuCriterion struct {
	ranks  int // 0 means any number
	ops    []string
	dtypes []string
	most   int64   // bytes
	faster float64 // minimum ratio of the best other time to auto's; 0 means no claim
	us     float64 // maximum time of auto in us; 0 means no claim
	host   float64 // bound of the time to queue it on the host in us; 0 means no claim
}

// The sizes to measure: every power of two between these.
const (
	gpuLowest  = 1 << 10
	gpuHighest = 256 << 20
)

// slack allows auto to be 2 % slower than the best anywhere, the noise of a median.
const slack = 1 / 1.02

// gpuCriteria are the claims for queued operations and for those in a graph. Absolute times of
// small operations are claimed for float32 only; bf16 uses the same kernels.
var gpuCriteria = []gpuCriterion{
	{ranks: 2, ops: []string{"allreduce"}, dtypes: []string{"f32", "bf16"}, most: 8 << 20, faster: 1.15},
	{ranks: 2, ops: []string{"allreduce"}, dtypes: []string{"f32", "bf16"}, most: 64 << 20, faster: 1.05},
	{ranks: 2, ops: []string{"allreduce"}, dtypes: []string{"f32"}, most: 64 << 10, us: 6},
	{ranks: 4, ops: []string{"allreduce"}, dtypes: []string{"f32", "bf16"}, most: 4 << 20, faster: 1.15},
	{ranks: 4, ops: []string{"allreduce"}, dtypes: []string{"f32", "bf16"}, most: 16 << 20, faster: 1.05},
	{ranks: 4, ops: []string{"allreduce"}, dtypes: []string{"f32"}, most: 64 << 10, us: 7},
	{ops: []string{"allreduce"}, dtypes: []string{"f32"}, most: 64 << 10, host: 3},
	{ops: []string{"reducescatter", "allgather"}, dtypes: []string{"f32", "bf16"}, most: 1 << 20, faster: 1.1},
	{ops: []string{"allreduce", "reducescatter", "allgather"}, dtypes: []string{"f32", "bf16"}, most: gpuHighest, faster: slack},
}

// gpuVerdict is the result of a criterion for one operation, dtype and mode.
type gpuVerdict struct {
	Mode    string   `json:"mode"`
	Op      string   `json:"op"`
	DType   string   `json:"dtype"`
	Up      int64    `json:"up_to_bytes"`
	Holds   bool     `json:"holds"`
	Faster  *float64 `json:"least_faster,omitempty"` // the lowest over the sizes
	FLimit  float64  `json:"faster_limit,omitempty"`
	Most    *float64 `json:"most_us,omitempty"`
	USLimit float64  `json:"us_limit,omitempty"`
	Host    *float64 `json:"host_us,omitempty"`
	HLimit  float64  `json:"host_limit,omitempty"`
	Launch  float64  `json:"launch_us,omitempty"` // host time of an empty launch, the driver's share; 0 if unknown
	At      int64    `json:"at_bytes,omitempty"`  // size of the worst value
	By      string   `json:"by,omitempty"`        // best other engine at that size
	Missing string   `json:"missing,omitempty"`   // sizes that were not measured
}

// judgeGPUs returns the verdicts on a session, queued operations first. A mode without measurements
// has no verdicts, except queued.
func judgeGPUs(s *gpuSession, tables []gpuTable) []gpuVerdict {
	var list []gpuVerdict
	for _, mode := range []string{modeQueued, modeGraph} {
		measured := slices.ContainsFunc(tables, func(t gpuTable) bool { return t.mode == mode })
		if !measured && mode != modeQueued {
			continue
		}
		for _, c := range gpuCriteria {
			if c.ranks != 0 && c.ranks != s.ranks || c.host > 0 && mode == modeGraph { // a graph has no host time per operation
				continue
			}
			for _, op := range c.ops {
				for _, dtype := range c.dtypes {
					v := c.judge(mode, op, dtype, tables)
					if c.host > 0 {
						v.Launch = s.launch
					}
					list = append(list, v)
				}
			}
		}
	}
	return list
}

func (c gpuCriterion) judge(mode, op, dtype string, tables []gpuTable) gpuVerdict {
	v := gpuVerdict{Mode: mode, Op: op, DType: dtype, Up: c.most, FLimit: c.faster, USLimit: c.us, HLimit: c.host}
	var lines []gpuLine
	for _, t := range tables {
		if t.mode == mode && t.op == op && t.dtype == dtype {
			lines = t.lines
		}
	}
	var missing []string
	v.Holds = true
	for bytes := int64(gpuLowest); bytes <= c.most; bytes *= 2 {
		i := slices.IndexFunc(lines, func(l gpuLine) bool { return l.bytes == bytes })
		if i < 0 || math.IsNaN(lines[i].faster) || c.host > 0 && lines[i].host == 0 {
			missing = append(missing, formatSize(bytes))
			continue
		}
		c.look(&v, lines[i])
	}
	if n := len(missing); n > 0 {
		v.Missing, v.Holds = strings.Join(missing, " "), false
		if n > 4 {
			v.Missing = fmt.Sprintf("%d sizes from %s to %s", n, missing[0], missing[n-1])
		}
	}
	return v
}

// look applies the criterion to one size.
func (c gpuCriterion) look(v *gpuVerdict, l gpuLine) {
	us := l.us[auto]
	if c.us > 0 && (v.Most == nil || us > *v.Most) {
		v.Most, v.At = &us, l.bytes
		v.Holds = v.Holds && us <= c.us
	}
	if host := l.host; c.host > 0 && (v.Host == nil || host > *v.Host) {
		v.Host, v.At = &host, l.bytes
		v.Holds = v.Holds && host < c.host
	}
	if faster := l.faster; c.faster > 0 && (v.Faster == nil || faster < *v.Faster) {
		v.Faster, v.At, v.By = &faster, l.bytes, l.best
		v.Holds = v.Holds && faster >= c.faster
	}
}

// String returns "HOLDS queued allreduce f32 up to 64M: at least 1.203 times faster (256K, nccl),
// limit 1.15".
func (v gpuVerdict) String() string {
	var parts []string
	if v.Faster != nil {
		parts = append(parts, fmt.Sprintf("at least %s times faster (%s, %s), limit %s", formatRatio(*v.Faster), formatSize(v.At), v.By,
			formatRatio(v.FLimit)))
	}
	if v.Most != nil {
		parts = append(parts, fmt.Sprintf("at most %.2f us (%s), limit %g", *v.Most, formatSize(v.At), v.USLimit))
	}
	if v.Host != nil {
		parts = append(parts, fmt.Sprintf("queued by the host in at most %.2f us (%s), limit %g", *v.Host, formatSize(v.At), v.HLimit))
		if v.Launch > 0 {
			parts = append(parts, fmt.Sprintf("an empty launch takes %.2f us", v.Launch))
		}
	}
	if v.Missing != "" {
		parts = append(parts, "not measured: "+v.Missing)
	}
	word := "HOLDS"
	if !v.Holds {
		word = "FAILS"
	}
	return fmt.Sprintf("%s  %s %s %s up to %s: %s", word, v.Mode, v.Op, v.DType, formatSize(v.Up), strings.Join(parts, "; "))
}
