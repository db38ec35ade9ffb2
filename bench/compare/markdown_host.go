package main

import (
	"encoding/json"
	"fmt"
	"slices"
)

// hostTables returns the times of fresh operations of two ranks, out of place, with those of the
// best MPI, in microseconds; then the ratios of our times to the best MPI's.
func hostTables(text []byte) ([]grid, error) {
	var file struct {
		Summaries []summaryJSON `json:"summaries"`
		Rows      []rowJSON     `json:"rows"`
	}
	if err := json.Unmarshal(text, &file); err != nil {
		return nil, err
	}
	var ops []string
	var sizes []int64
	cells := map[int64]map[string]string{}
	for _, r := range file.Rows {
		if r.Ranks != 2 || r.Style != "fresh" || r.InPlace || r.Op == "barrier" {
			continue
		}
		if !slices.Contains(ops, r.Op) {
			ops = append(ops, r.Op)
		}
		if cells[r.Bytes] == nil {
			cells[r.Bytes] = map[string]string{}
		}
		cells[r.Bytes][r.Op] = timeIn(r.US, ours) + " / " + timeIn(r.US, r.Best)
		sizes = append(sizes, r.Bytes)
	}
	head := []string{"bytes"}
	for _, op := range ops {
		head = append(head, title(op))
	}
	times := grid{head}
	for _, bytes := range everyOther(sizes) {
		row := []string{formatSize(bytes)}
		for _, op := range ops {
			text := cells[bytes][op]
			if text == "" {
				text = "-"
			}
			row = append(row, text)
		}
		times = append(times, row)
	}
	return []grid{times, hostRatios(file.Summaries)}, nil
}

// hostRatios returns the geometric mean and the maximum ratio per operation.
func hostRatios(summaries []summaryJSON) grid {
	type way struct {
		ranks int
		style string
	}
	head := []string{"ratio: mean, most"}
	var ways []way
	var names []string
	cells := map[string]map[way]string{}
	for _, s := range summaries {
		w := way{s.Ranks, s.Style}
		if !slices.Contains(ways, w) {
			ways = append(ways, w)
			head = append(head, fmt.Sprintf("%d ranks, %s", w.ranks, w.style))
		}
		name := title(s.Op)
		if s.InPlace {
			name += " in place"
		}
		if !slices.Contains(names, name) {
			names = append(names, name)
			cells[name] = map[way]string{}
		}
		if s.Geomean != nil && s.Max != nil {
			cells[name][w] = digits(*s.Geomean) + ", " + digits(*s.Max)
		}
	}
	g := grid{head}
	for _, name := range names {
		row := []string{name}
		for _, w := range ways {
			text := cells[name][w]
			if text == "" {
				text = "-"
			}
			row = append(row, text)
		}
		g = append(g, row)
	}
	return g
}
