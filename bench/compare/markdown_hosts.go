package main

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// hostsTables returns the tables of a result of compare hosts.
func hostsTables(text []byte) ([]grid, error) {
	var file struct {
		Verdicts []hostsVerdict `json:"verdicts"`
		Rows     []hostsRow     `json:"rows"`
	}
	if err := json.Unmarshal(text, &file); err != nil {
		return nil, err
	}
	return hostsGrids(file.Rows, file.Verdicts, true), nil
}

// hostsGrids returns the times of each layout in microseconds, with the ratios of ours to the
// better library; then the largest ratios. If short, it has every other size.
func hostsGrids(rows []hostsRow, verdicts []hostsVerdict, short bool) []grid {
	var grids []grid
	for len(rows) > 0 {
		n := 1
		for n < len(rows) && rows[n].Hosts == rows[0].Hosts && rows[n].Each == rows[0].Each {
			n++
		}
		grids = append(grids, hostsGrid(rows[:n], short))
		rows = rows[n:]
	}
	limits := grid{append([]string{"largest ratio", "limit"}, hostsOurs...)}
	errs := grid{{"largest error of a prediction", "limit", "error"}}
	for i, v := range verdicts {
		text := "-"
		if v.At > 0 {
			text = digits(v.Most) + " at " + formatSize(v.At)
		}
		row := []string{fmt.Sprintf("%d hosts x %d, from %s", v.Hosts, v.Each, formatSize(v.From)), digits(v.Limit), text}
		switch {
		case v.Engine == predictionEngine:
			errs = append(errs, row)
		case i%len(hostsOurs) == 0:
			limits = append(limits, row)
		default:
			limits[len(limits)-1] = append(limits[len(limits)-1], text)
		}
	}
	return append(grids, limits, errs)
}

func hostsGrid(rows []hostsRow, short bool) grid {
	var engines []string
	var sizes []int64
	for _, engine := range hostsEngines {
		if slices.ContainsFunc(rows, func(x hostsRow) bool { return x.US[engine] > 0 }) {
			engines = append(engines, engine)
		}
	}
	for _, x := range rows {
		sizes = append(sizes, x.Bytes)
	}
	if short {
		sizes = everyOther(sizes)
	}
	libraries := slices.ContainsFunc(rows, func(x hostsRow) bool { return x.Best != "" })
	predicted := slices.ContainsFunc(rows, func(x hostsRow) bool { return x.PredictedUS > 0 })
	head := append([]string{fmt.Sprintf("%d hosts x %d", rows[0].Hosts, rows[0].Each)}, engines...)
	if libraries {
		head = append(head, "ratios")
	}
	if predicted {
		head = append(head, "predicted")
	}
	g := grid{head}
	for _, x := range rows {
		if !slices.Contains(sizes, x.Bytes) {
			continue
		}
		row := []string{formatSize(x.Bytes)}
		for _, engine := range engines {
			row = append(row, timeIn(x.US, engine))
		}
		var ratios []string
		for _, engine := range hostsOurs {
			text := "-"
			if ratio, ok := x.Ratio[engine]; ok {
				text = digits(ratio)
			}
			ratios = append(ratios, text)
		}
		if libraries {
			row = append(row, strings.Join(ratios, ", "))
		}
		if predicted {
			row = append(row, digits(x.PredictedUS))
		}
		g = append(g, row)
	}
	return g
}
