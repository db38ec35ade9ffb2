package main

import (
	"fmt"
	"math"
	"slices"
	"strings"
)

// trainLine is one row of the comparison.
type trainLine struct {
	trainKey
	us      map[string]float64 // median over the rounds of each engine with samples
	exposed float64            // ours, in percent; NaN if unknown
	best    string             // faster one of eager and compiled torch; "" if there is none
	faster  float64            // time of best over ours; NaN if either is missing
	scaling float64            // our time on one rank over this one; NaN if either is missing
}

// rival reports whether ours is compared with an engine of torch.
func rival(engine string) bool {
	return engine == torchEager || strings.HasPrefix(engine, torchCompile)
}

// newTrainLines groups the samples by model, precision and number of ranks.
func newTrainLines(s *trainSession) []trainLine {
	times := map[trainKey]map[string][]float64{}
	exposed := map[trainKey][]float64{}
	var keys []trainKey
	for _, x := range s.samples {
		if times[x.trainKey] == nil {
			times[x.trainKey] = map[string][]float64{}
			keys = append(keys, x.trainKey)
		}
		times[x.trainKey][x.engine] = append(times[x.trainKey][x.engine], x.us)
		if x.exposed != nil && x.engine == ours {
			exposed[x.trainKey] = append(exposed[x.trainKey], *x.exposed)
		}
	}
	slices.SortFunc(keys, func(a, b trainKey) int {
		if m := slices.Index(trainModels, a.model) - slices.Index(trainModels, b.model); m != 0 {
			return m
		}
		if p := strings.Compare(a.precision, b.precision); p != 0 {
			return p
		}
		return a.ranks - b.ranks
	})
	var lines []trainLine
	for _, key := range keys {
		lines = append(lines, newTrainLine(key, times, median(exposed[key])))
	}
	return lines
}

func newTrainLine(key trainKey, times map[trainKey]map[string][]float64, exposed float64) trainLine {
	l := trainLine{trainKey: key, us: map[string]float64{}, exposed: exposed, faster: math.NaN(), scaling: math.NaN()}
	for engine, list := range times[key] {
		l.us[engine] = median(list)
	}
	for _, engine := range sortedKeys(l.us) {
		if rival(engine) && (l.best == "" || l.us[engine] < l.us[l.best]) {
			l.best = engine
		}
	}
	us, there := l.us[ours]
	if there && l.best != "" {
		l.faster = l.us[l.best] / us
	}
	one := key
	one.ranks = 1
	if alone := times[one][ours]; there && len(alone) > 0 {
		l.scaling = median(alone) / us
	}
	return l
}

func sortedKeys(m map[string]float64) []string {
	var keys []string
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

// The ratios of criteria.
const (
	isFaster   = "faster"         // time of eager or compiled torch, whichever is less, over ours
	isScaling  = "scaling"        // our time on one rank over ours on these ranks
	isSharding = "sharding"       // our time over ours with sharded states
	isSharded  = "sharded faster" // least time of torch's sharded engines over ours with sharded states
)

// trainCriterion is a claim about a model: a minimum ratio.
type trainCriterion struct {
	model      string
	precisions []string
	ranks      []int
	what       string
	limit      float64
}

// trainCriteria are the claims between GPUs.
var trainCriteria = []trainCriterion{
	{"mlp", []string{"fp32", "tf32"}, []int{2, 4}, isFaster, 8},
	{"cnn", []string{"fp32", "tf32"}, []int{2, 4}, isFaster, 4},
	{"wide", []string{"tf32"}, []int{2, 4}, isFaster, 1.4},
	{"wide", []string{"fp32"}, []int{2, 4}, isFaster, 1.08},
	{"wide", []string{"fp32", "tf32"}, []int{4}, isScaling, 0.95},
	{"cnn", []string{"fp32", "tf32"}, []int{4}, isScaling, 0.95},
	{"wide", []string{"tf32"}, []int{4}, isSharding, 1.1},
	{"wide", []string{"tf32"}, []int{4}, isSharded, 1.4},
}

// ratio returns the ratio named by what; NaN if a part is missing. claimed is false for ratios of
// sharded states that were not measured.
func (l *trainLine) ratio(what string) (value float64, claimed bool) {
	zero, sharded := l.us[oursZero]
	over := func(engines ...string) float64 {
		best := math.NaN()
		for _, e := range engines {
			if us, ok := l.us[e]; ok && !(us >= best) {
				best = us
			}
		}
		return best / zero
	}
	switch what {
	case isFaster:
		return l.faster, true
	case isScaling:
		return l.scaling, true
	case isSharding:
		return over(ours), sharded
	}
	return over(torchZero, torchFSDP), sharded
}

// trainVerdict is the result of a criterion on one number of ranks.
type trainVerdict struct {
	Model     string   `json:"model"`
	Precision string   `json:"precision"`
	Ranks     int      `json:"ranks"`
	What      string   `json:"what"` // name of the ratio: isFaster or another
	Value     *float64 `json:"value"`
	Limit     float64  `json:"limit"`
	Holds     bool     `json:"holds"`
}

// judgeTraining returns the verdicts on the measured models, precisions and numbers of ranks. There
// are no claims on the host.
func judgeTraining(s *trainSession, lines []trainLine) []trainVerdict {
	var list []trainVerdict
	if s.Device != "cuda" {
		return nil
	}
	for _, c := range trainCriteria {
		for _, precision := range c.precisions {
			for _, ranks := range c.ranks {
				i := slices.IndexFunc(lines, func(l trainLine) bool { return l.trainKey == trainKey{c.model, precision, ranks} })
				if i < 0 {
					continue
				}
				value, claimed := lines[i].ratio(c.what)
				if !claimed {
					continue
				}
				v := trainVerdict{Model: c.model, Precision: precision, Ranks: ranks, What: c.what, Limit: c.limit}
				v.Value, v.Holds = maybe(value), value >= v.Limit
				list = append(list, v)
			}
		}
	}
	return list
}

// String returns "HOLDS wide tf32, 4 ranks: faster 1.52, limit 1.4".
func (v trainVerdict) String() string {
	word, value := "HOLDS", "not measured"
	if !v.Holds {
		word = "FAILS"
	}
	if v.Value != nil {
		value = formatRatio(*v.Value)
	}
	return fmt.Sprintf("%s  %s %s, %d ranks: %s %s, limit %g", word, v.Model, v.Precision, v.Ranks, v.What, value, v.Limit)
}
