package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// The engines of bench/hosts.sh. The libraries are judged as they are installed; openmpi-yield has
// a setting for more ranks than cores and is only shown.
var (
	hostsOurs      = []string{"symgrad-ucx", "symgrad-openmpi", "symgrad-mpich"}
	hostsLibraries = []string{"openmpi", "mpich"}
	hostsEngines   = slices.Concat(hostsLibraries, []string{"openmpi-yield"}, hostsOurs)
)

// hostsCriterion is a claim about the ratio of the time of each engine of ours to the better
// library's, at every size from some.
type hostsCriterion struct {
	hosts, each int
	from        int64
	most        float64
}

var hostsCriteria = []hostsCriterion{
	{2, 1, lowestBytes, 1.1},
	{2, 1, 1 << 20, 0.8},
	{2, 2, lowestBytes, 0.1},
}

// hostsRow has the times of an allreduce over hosts.
type hostsRow struct {
	Hosts int                `json:"hosts"`
	Each  int                `json:"ranks_per_host"`
	Bytes int64              `json:"bytes"`
	Best  string             `json:"best"`  // the better library; "" without a time of one
	Ratio map[string]float64 `json:"ratio"` // time of each engine of ours over the better library's
	US    map[string]float64 `json:"time_us"`
}

// hostsVerdict is the result of a criterion for one engine.
type hostsVerdict struct {
	Hosts   int     `json:"hosts"`
	Each    int     `json:"ranks_per_host"`
	From    int64   `json:"from_bytes"`
	Engine  string  `json:"engine"`
	Holds   bool    `json:"holds"`
	Most    float64 `json:"most"` // the largest ratio
	At      int64   `json:"at_bytes"`
	Limit   float64 `json:"limit"`
	Missing string  `json:"missing,omitempty"` // sizes that were not measured
}

// hostsReport is the evaluation of a folder of bench/hosts.sh.
type hostsReport struct {
	session
	runs     map[string]int // with a result, of each engine
	rows     []hostsRow
	verdicts []hostsVerdict
}

// hostsFile is the name of the result of a run: engine, hosts x ranks, number.
var hostsFile = regexp.MustCompile(`^([a-z-]+)\.(\d+)x(\d+)\.\d+\.(json|err)$`)

// readHosts reads the folder of bench/hosts.sh.
//
// Errors: a missing or invalid file, a folder without results. A failed run becomes a note.
func readHosts(folder string) (*hostsReport, error) {
	r := &hostsReport{session: session{clocks: map[string]clock{}}, runs: map[string]int{}}
	if err := readJSON(filepath.Join(folder, "session.json"), &r.session); err != nil {
		return nil, err
	}
	files, err := os.ReadDir(folder)
	if err != nil {
		return nil, err
	}
	for _, f := range files {
		if err := r.readRun(folder, f.Name()); err != nil {
			return nil, fmt.Errorf("%s: %w", f.Name(), err)
		}
	}
	if len(r.rows) == 0 {
		return nil, fmt.Errorf("%s has no results", folder)
	}
	slices.SortFunc(r.rows, func(a, b hostsRow) int {
		return cmp.Or(cmp.Compare(a.Hosts, b.Hosts), cmp.Compare(a.Each, b.Each), cmp.Compare(a.Bytes, b.Bytes))
	})
	for i := range r.rows {
		r.rows[i].compare()
	}
	for _, c := range hostsCriteria {
		for _, engine := range hostsOurs {
			r.verdicts = append(r.verdicts, c.judge(engine, r.rows))
		}
	}
	return r, nil
}

// readRun reads the result of one run. Other files are left alone.
func (r *hostsReport) readRun(folder, name string) error {
	var hosts, each int
	parts := hostsFile.FindStringSubmatch(name)
	if parts == nil || !slices.Contains(hostsEngines, parts[1]) {
		return nil
	}
	if _, err := fmt.Sscan(parts[2], &hosts); err != nil {
		return err
	}
	if _, err := fmt.Sscan(parts[3], &each); err != nil {
		return err
	}
	engine, parse := parts[1], parseCollbench
	if slices.Contains(hostsOurs, engine) {
		parse = r.parseSymgrad
	}
	raw, err := os.ReadFile(filepath.Join(folder, name))
	if err != nil {
		return err
	}
	if parts[4] == "err" {
		r.partial = append(r.partial, name)
		return nil
	}
	rows, c, err := parse(raw, unit{Ranks: hosts * each})
	if errors.Is(err, errPartial) {
		r.partial = append(r.partial, name)
	} else if err != nil {
		return err
	}
	r.clocks[engine] = c
	r.runs[engine]++
	for _, x := range rows {
		if x.Wrong > 0 {
			r.wrong = append(r.wrong, fmt.Sprintf("%s: %d wrong elements at %d bytes", name, x.Wrong, x.Bytes))
			continue
		}
		us := r.times(hosts, each, x.Bytes)
		if old, ok := us[engine]; !ok || x.TimeUS < old {
			us[engine] = round(x.TimeUS)
		}
	}
	return nil
}

// times returns the times of a row, which it adds if it is new.
func (r *hostsReport) times(hosts, each int, bytes int64) map[string]float64 {
	i := slices.IndexFunc(r.rows, func(x hostsRow) bool { return x.Hosts == hosts && x.Each == each && x.Bytes == bytes })
	if i < 0 {
		i = len(r.rows)
		r.rows = append(r.rows, hostsRow{Hosts: hosts, Each: each, Bytes: bytes, US: map[string]float64{}})
	}
	return r.rows[i].US
}

// compare sets the better library and the ratios.
func (x *hostsRow) compare() {
	for _, engine := range hostsLibraries {
		if us, ok := x.US[engine]; ok && (x.Best == "" || us < x.US[x.Best]) {
			x.Best = engine
		}
	}
	x.Ratio = map[string]float64{}
	for _, engine := range hostsOurs {
		if us, ok := x.US[engine]; ok && x.Best != "" {
			x.Ratio[engine] = round(us / x.US[x.Best])
		}
	}
}

func (c hostsCriterion) judge(engine string, rows []hostsRow) hostsVerdict {
	v := hostsVerdict{Hosts: c.hosts, Each: c.each, From: c.from, Engine: engine, Limit: c.most}
	low, high, gaps := int64(highestBytes), int64(0), 0
	for _, x := range rows {
		if x.Hosts != c.hosts || x.Each != c.each || x.Bytes < c.from {
			continue
		}
		ratio, ok := x.Ratio[engine]
		if !ok || slices.ContainsFunc(hostsLibraries, func(name string) bool { return x.US[name] == 0 }) {
			gaps++
			continue
		}
		low, high = min(low, x.Bytes), max(high, x.Bytes)
		if ratio > v.Most {
			v.Most, v.At = ratio, x.Bytes
		}
	}
	switch {
	case high == 0:
		v.Missing = "all sizes"
	case low > c.from:
		v.Missing = "below " + formatSize(low)
	case high < highestBytes:
		v.Missing = "above " + formatSize(high)
	case gaps > 0:
		v.Missing = fmt.Sprintf("%d sizes", gaps)
	}
	v.Holds = v.Missing == "" && v.Most <= c.most
	return v
}

// holds reports whether all criteria hold and all results are correct.
func (r *hostsReport) holds() bool {
	return len(r.wrong) == 0 && !slices.ContainsFunc(r.verdicts, func(v hostsVerdict) bool { return !v.Holds })
}

func (r *hostsReport) print(w io.Writer) {
	for _, g := range hostsGrids(r.rows, r.verdicts, false) {
		fmt.Fprintf(w, "%v\n", g)
	}
	for _, text := range r.partial {
		fmt.Fprintln(w, "note: no complete result in", text)
	}
	for _, text := range r.wrong {
		fmt.Fprintln(w, "WRONG:", text)
	}
	for _, v := range r.verdicts {
		fmt.Fprintln(w, v)
	}
}

// String returns a line: "HOLDS 2 hosts x 1, from 1M, symgrad-ucx: at most 0.700 (2M), limit 0.8".
func (v hostsVerdict) String() string {
	word := map[bool]string{true: "HOLDS", false: "FAILS"}[v.Holds]
	text := fmt.Sprintf("%s  %d hosts x %d, from %s, %s: at most %s (%s)%s", word, v.Hosts, v.Each, formatSize(v.From), v.Engine,
		formatRatio(v.Most), formatSize(v.At), limitText(v.Limit))
	if v.Missing != "" {
		text += "; not measured: " + v.Missing
	}
	return text
}

// fields returns the result, in the order of the file.
func (r *hostsReport) fields() []field {
	var verdicts, rows []any
	for _, v := range r.verdicts {
		verdicts = append(verdicts, v)
	}
	for _, x := range r.rows {
		rows = append(rows, x)
	}
	return []field{
		{name: "date", one: r.Date},
		{name: "machine", one: r.Machine},
		{name: "versions", one: r.Versions},
		{name: "libraries", one: r.libraries},
		{name: "clocks", one: r.clocks},
		{name: "time", one: "minimum over runs of the mean over iterations and ranks"},
		{name: "runs", one: r.runs},
		{name: "without_result", one: r.partial},
		{name: "wrong", one: r.wrong},
		{name: "verdicts", many: verdicts},
		{name: "rows", many: rows},
	}
}

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
	for i := 0; i+len(hostsOurs) <= len(verdicts); i += len(hostsOurs) {
		v := verdicts[i]
		row := []string{fmt.Sprintf("%d hosts x %d, from %s", v.Hosts, v.Each, formatSize(v.From)), digits(v.Limit)}
		for _, v := range verdicts[i : i+len(hostsOurs)] {
			text := "-"
			if v.At > 0 {
				text = digits(v.Most) + " at " + formatSize(v.At)
			}
			row = append(row, text)
		}
		limits = append(limits, row)
	}
	return append(grids, limits)
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
	g := grid{slices.Concat([]string{fmt.Sprintf("%d hosts x %d", rows[0].Hosts, rows[0].Each)}, engines, []string{"ratios"})}
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
		g = append(g, append(row, strings.Join(ratios, ", ")))
	}
	return g
}
