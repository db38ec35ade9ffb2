package main

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// trainTables returns the times of steps in microseconds, with the samples of all ranks per second;
// then, if the file has them, the times of sharded steps.
func trainTables(text []byte) ([]grid, error) {
	var file struct {
		Rows []trainRowJSON `json:"rows"`
	}
	if err := json.Unmarshal(text, &file); err != nil {
		return nil, err
	}
	g := grid{{
		"model", "samples a rank", "precision", "ranks", "PyTorch", "compiled", ours,
		"samples/s", "times as fast",
	}}
	var sharded []string
	for _, r := range file.Rows {
		compiled := math.NaN()
		for engine, us := range r.US {
			switch {
			case strings.HasPrefix(engine, torchCompile) && !(us >= compiled):
				compiled = us
			case engine == torchZero || strings.HasPrefix(engine, torchFSDP) ||
				strings.HasPrefix(engine, oursSharded):
				sharded = append(sharded, engine)
			}
		}
		row := append(r.labels(), timeIn(r.US, torchEager), "-", timeIn(r.US, ours), "-", "-")
		if !math.IsNaN(compiled) {
			row[5] = digits(compiled)
		}
		if us := r.US[ours]; us > 0 {
			row[7] = strconv.FormatFloat(round(float64(r.RankBatch*r.Ranks)/us*1e6), 'f', 0, 64)
		}
		if r.Faster != nil {
			row[8] = digits(*r.Faster)
		}
		g = append(g, row)
	}
	if len(sharded) == 0 {
		return []grid{g}, nil
	}
	slices.Sort(sharded)
	return []grid{g, shardedTable(file.Rows, slices.Compact(sharded))}, nil
}

// shardedTable returns the times of rows with sharded steps.
func shardedTable(rows []trainRowJSON, engines []string) grid {
	head := []string{"model", "samples a rank", "precision", "ranks"}
	for _, e := range engines {
		if stage, ok := strings.CutPrefix(e, oursSharded); ok {
			e = ours + ", stage " + stage
		}
		head = append(head, e)
	}
	g := grid{head}
	for _, r := range rows {
		some, row := false, r.labels()
		for _, e := range engines {
			_, ok := r.US[e]
			some = some || ok
			row = append(row, timeIn(r.US, e))
		}
		if some {
			g = append(g, row)
		}
	}
	return g
}

// labels returns the columns that identify the row.
func (r trainRowJSON) labels() []string {
	return []string{r.Model, fmt.Sprint(r.RankBatch), r.Precision, fmt.Sprint(r.Ranks)}
}
