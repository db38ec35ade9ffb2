package main

import (
	"cmp"
	"encoding/json"
	"slices"
	"strconv"
)

// gpuSpans are the ranges of sizes whose rows gpuTables combines. The last has no bound.
var gpuSpans = []struct {
	name  string
	bytes int64
}{{"up to 1M", 1 << 20}, {"2M to 16M", 16 << 20}, {"32M and more", 1 << 62}}

// gpuTables returns two tables. The first has the times of queued float32 operations of every
// engine in microseconds, with the dispatcher's bus bandwidth as nccl-tests defines it. The second
// has the time of the best other engine over the dispatcher's.
func gpuTables(text []byte) ([]grid, error) {
	var file struct {
		Ranks   int          `json:"ranks"`
		Engines []string     `json:"engines"`
		Rows    []gpuRowJSON `json:"rows"`
	}
	if err := json.Unmarshal(text, &file); err != nil {
		return nil, err
	}
	engines := slices.DeleteFunc(file.Engines, func(engine string) bool {
		return slices.Contains(gpuOwn, engine)
	})
	head := append([]string{"operation", "bytes"}, engines...)
	times := grid{append(head, ours, "GB/s", "times as fast")}
	var sizes []int64
	for _, r := range file.Rows {
		sizes = append(sizes, r.Bytes)
	}
	sizes = everyOther(sizes)
	for _, r := range file.Rows {
		us, ok := r.US[auto]
		if !ok || r.Mode != modeQueued || r.DType != "f32" || !slices.Contains(sizes, r.Bytes) {
			continue
		}
		row := []string{title(r.Op), formatSize(r.Bytes)}
		for _, e := range append(slices.Clone(engines), auto) {
			row = append(row, timeIn(r.US, e))
		}
		bus := float64(r.Bytes) / us / 1e3 * float64(file.Ranks-1) / float64(file.Ranks)
		if r.Op == "allreduce" {
			bus *= 2 // a reduce-scatter and an all-gather
		}
		faster := "-"
		if r.Faster != nil {
			faster = digits(*r.Faster)
		}
		times = append(times, append(row, digits(bus), faster))
	}
	return []grid{times, gpuRatios(file.Rows)}, nil
}

// gpuRatios returns the range of ratios per operation and range of sizes.
func gpuRatios(rows []gpuRowJSON) grid {
	head := []string{"times as fast", "bytes"}
	var columns []gpuKey
	for _, r := range rows {
		k := gpuKey{mode: r.Mode, dtype: r.DType}
		if !slices.Contains(columns, k) {
			columns = append(columns, k)
			head = append(head, k.mode+", "+k.dtype)
		}
	}
	g := grid{head}
	for _, op := range gpuOperations {
		low := int64(0)
		for _, s := range gpuSpans {
			row, some := []string{title(op.name), s.name}, false
			for _, c := range columns {
				var ratios []float64
				for _, r := range rows {
					if r.Mode == c.mode && r.DType == c.dtype && r.Op == op.name &&
						r.Bytes > low && r.Bytes <= s.bytes && r.Faster != nil {
						ratios = append(ratios, *r.Faster)
					}
				}
				some = some || len(ratios) > 0
				row = append(row, span(ratios))
			}
			if low = s.bytes; some {
				g = append(g, row)
			}
		}
	}
	return g
}

// timeIn returns the time of an engine, or "-".
func timeIn(us map[string]float64, engine string) string {
	if v, ok := us[engine]; ok {
		return digits(v)
	}
	return "-"
}

// tuneRow is a row of a table of symgrad tune.
type tuneRow struct {
	Kind      string `json:"kind"`
	DType     string `json:"dtype"`
	Symmetric bool   `json:"symmetric"`
	Ranks     int    `json:"ranks"`
	Bytes     int64  `json:"bytes"`
	Timings   []struct {
		Engine string  `json:"engine"`
		US     float64 `json:"microseconds"`
	} `json:"timings"`
}

// tuneTables returns, for every operation of float32 or no dtype on the symmetric heap, the least
// time of symgrad's kernels and of the libraries.
func tuneTables(text []byte) ([]grid, error) {
	var file struct {
		Rows []tuneRow `json:"rows"`
	}
	if err := json.Unmarshal(text, &file); err != nil {
		return nil, err
	}
	type place struct {
		ranks int
		bytes int64
	}
	cells := map[place]map[string]string{}
	var kinds []string
	for _, r := range file.Rows {
		if !r.Symmetric || r.DType != "f32" && r.DType != "" {
			continue
		}
		if !slices.Contains(kinds, r.Kind) {
			kinds = append(kinds, r.Kind)
		}
		at := place{r.Ranks, r.Bytes}
		if cells[at] == nil {
			cells[at] = map[string]string{}
		}
		cells[at][r.Kind] = r.cell()
	}
	slices.SortStableFunc(kinds, func(a, b string) int { return cmp.Compare(orderOf(a), orderOf(b)) })
	head := []string{"GPUs", "bytes"}
	for _, k := range kinds {
		head = append(head, title(k))
	}
	g := grid{head}
	places := make([]place, 0, len(cells))
	var sizes []int64
	for at := range cells {
		places, sizes = append(places, at), append(sizes, at.bytes)
	}
	slices.SortFunc(places, func(a, b place) int {
		return cmp.Or(cmp.Compare(a.ranks, b.ranks), cmp.Compare(a.bytes, b.bytes))
	})
	sizes = everyOther(sizes)
	for _, at := range places {
		if !slices.Contains(sizes, at.bytes) {
			continue
		}
		row := []string{strconv.Itoa(at.ranks), formatSize(at.bytes)}
		for _, k := range kinds {
			row = append(row, cmp.Or(cells[at][k], "-"))
		}
		g = append(g, row)
	}
	return []grid{g}, nil
}

// cell returns "ours / libraries", the least times. Engines that the program no longer has do not
// count.
func (r tuneRow) cell() string {
	best := map[bool]float64{} // key: whether the engine is ours
	for _, t := range r.Timings {
		own := slices.Contains(gpuOwn, t.Engine)
		if !own && !slices.Contains(gpuOthers, t.Engine) {
			continue
		}
		if us, ok := best[own]; !ok || t.US < us {
			best[own] = t.US
		}
	}
	parts := map[bool]string{true: "-", false: "-"}
	for own, us := range best {
		parts[own] = digits(us)
	}
	return parts[true] + " / " + parts[false]
}
