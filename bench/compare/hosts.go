package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
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

// Predictions are compared with the times of one engine, on hosts with one rank each.
const (
	predictedEngine  = "symgrad-ucx"
	predictionLimit  = 0.3 // of the error of each
	predictionEngine = "prediction"
)

// predictedHosts are the numbers of hosts with predictions.
var predictedHosts = []int{2, 3}

// hostsNet is the measured network between hosts and the predicted times.
type hostsNet struct {
	Net  json.RawMessage `json:"net"`
	Rows []struct {
		Bytes int64   `json:"bytes"`
		US    float64 `json:"time_us"`
	} `json:"rows"`
}

// hostsRow has the times of an allreduce over hosts.
type hostsRow struct {
	Hosts int                `json:"hosts"`
	Each  int                `json:"ranks_per_host"`
	Bytes int64              `json:"bytes"`
	Best  string             `json:"best"`  // the better library; "" without a time of one
	Ratio map[string]float64 `json:"ratio"` // time of each engine of ours over the better library's
	US    map[string]float64 `json:"time_us"`

	PredictedUS float64 `json:"predicted_us,omitempty"` // from measurements of the network
}

// error returns the relative error of the prediction; NaN if either time is missing.
func (x *hostsRow) error() float64 {
	us := x.US[predictedEngine]
	if x.PredictedUS == 0 || us == 0 {
		return math.NaN()
	}
	return x.PredictedUS/us - 1
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
	nets     []any
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
	for _, hosts := range predictedHosts {
		if err := r.readNet(folder, hosts); err != nil {
			return nil, err
		}
		r.verdicts = append(r.verdicts, judgePrediction(hosts, r.rows))
	}
	return r, nil
}

// readNet adds the predictions for a number of hosts to the rows, if there are any.
func (r *hostsReport) readNet(folder string, hosts int) error {
	var n hostsNet
	err := readJSON(filepath.Join(folder, fmt.Sprintf("predicted.%dx1.json", hosts)), &n)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	r.nets = append(r.nets, n.Net)
	for _, p := range n.Rows {
		for i := range r.rows {
			if x := &r.rows[i]; x.Hosts == hosts && x.Each == 1 && x.Bytes == p.Bytes {
				x.PredictedUS = round(p.US)
			}
		}
	}
	return err
}

func judgePrediction(hosts int, rows []hostsRow) hostsVerdict {
	v := hostsVerdict{Hosts: hosts, Each: 1, From: lowestBytes, Engine: predictionEngine, Limit: predictionLimit}
	var s sizeRange
	for i := range rows {
		x := &rows[i]
		if x.Hosts != hosts || x.Each != 1 {
			continue
		}
		e := math.Abs(x.error())
		s.add(x.Bytes, !math.IsNaN(e))
		if e > v.Most {
			v.Most, v.At = round(e), x.Bytes
		}
	}
	v.Missing = s.missing(v.From)
	v.Holds = v.Missing == "" && v.Most <= v.Limit
	return v
}

// sizeRange is the range of sizes that were measured.
type sizeRange struct {
	low, high int64
	gaps      int
}

func (s *sizeRange) add(bytes int64, measured bool) {
	switch {
	case !measured:
		s.gaps++
	case s.high == 0:
		s.low, s.high = bytes, bytes
	default:
		s.low, s.high = min(s.low, bytes), max(s.high, bytes)
	}
}

// missing returns the sizes of a criterion that were not measured; "" if there are none.
func (s *sizeRange) missing(from int64) string {
	switch {
	case s.high == 0:
		return "all sizes"
	case s.low > from:
		return "below " + formatSize(s.low)
	case s.high < highestBytes:
		return "above " + formatSize(s.high)
	case s.gaps > 0:
		return fmt.Sprintf("%d sizes", s.gaps)
	}
	return ""
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
	var s sizeRange
	for _, x := range rows {
		if x.Hosts != c.hosts || x.Each != c.each || x.Bytes < c.from {
			continue
		}
		ratio, ok := x.Ratio[engine]
		ok = ok && !slices.ContainsFunc(hostsLibraries, func(name string) bool { return x.US[name] == 0 })
		if s.add(x.Bytes, ok); ok && ratio > v.Most {
			v.Most, v.At = ratio, x.Bytes
		}
	}
	v.Missing = s.missing(c.from)
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
		{name: "nets", many: r.nets},
		{name: "verdicts", many: verdicts},
		{name: "rows", many: rows},
	}
}
