package plan

import (
	"fmt"
	"strings"
	"text/tabwriter"

	"github.com/symgrad/symgrad/dist"
)

// Figures has the predicted or the measured numbers of one rank.
type Figures struct {
	Memory  Memory
	Volume  Volume   // of one step
	Exposed *float64 // exposed communication of a step in seconds; nil if unknown
}

// Figures returns the predictions for a rank at the stage of the run.
func (p *Plan) Figures(rank int) Figures {
	s := p.Configured()
	f := Figures{Memory: s.Ranks[min(max(rank, 0), len(s.Ranks)-1)], Volume: s.Volume}
	if s.Time != nil {
		f.Exposed = s.Time.Exposed
	}
	return f
}

// Count returns the volume of one step of a finished run, from the records of the world's flight
// recorder. It selects the operations that s.Step has, by name and kind, and divides by the number
// of steps. Other operations, such as the exchange of losses, do not count.
//
// Errors: ErrJob when the operations do not form a whole number of steps, for example because the
// ring of the recorder has overwritten some.
func (s *Stage) Count(records []dist.Record, ranks int) (Volume, error) {
	type key struct{ name, kind string }
	wanted, found := map[key]int{}, map[key]int{}
	for _, c := range s.Step {
		wanted[key{c.Name, c.Kind}]++
	}
	var all []Collective
	for _, r := range records {
		c := FromRecord(r, ranks)
		if k := (key{c.Name, c.Kind}); wanted[k] > 0 {
			found[k]++
			all = append(all, c)
		}
	}
	steps := 0
	for _, c := range s.Step {
		k := key{c.Name, c.Kind}
		if found[k]%wanted[k] != 0 || steps > 0 && found[k]/wanted[k] != steps || found[k] == 0 {
			return Volume{}, fmt.Errorf("%w: the flight recorder has %d %s of %q, %d steps of the operations before it, and no whole number of steps: enlarge its ring (comm.trace_entries)",
				ErrJob, found[k], c.Kind, c.Name, steps)
		}
		steps = found[k] / wanted[k]
	}
	v := Sum(all)
	steps = max(steps, 1)
	return Volume{Collectives: v.Collectives / steps, Bytes: v.Bytes / int64(steps), Sent: v.Sent / int64(steps)}, nil
}

// Compare returns a table of predicted and measured numbers, without rows that are 0 in both. A
// measured 0 means: not measured.
func Compare(predicted, measured Figures) string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "of a rank\tpredicted\tmeasured\tdifference\t")
	p, m := oneStaging(predicted.Memory).parts(), oneStaging(measured.Memory).parts()
	for i := range p {
		compareRow(w, p[i].name, p[i].bytes, m[i].bytes, bytesText)
	}
	compareRow(w, "memory in all", predicted.Memory.Total(), measured.Memory.Total(), bytesText)
	whole := func(n int64) string { return fmt.Sprint(n) }
	compareRow(w, "collectives of a step", int64(predicted.Volume.Collectives), int64(measured.Volume.Collectives), whole)
	compareRow(w, "bytes of a step", predicted.Volume.Bytes, measured.Volume.Bytes, bytesText)
	compareRow(w, "sent in a step", predicted.Volume.Sent, measured.Volume.Sent, bytesText)
	if e, f := predicted.Exposed, measured.Exposed; e != nil && f != nil {
		const nano = 1e9
		compareRow(w, "waited in a step", int64(*e*nano), int64(*f*nano), func(n int64) string { return secondsText(float64(n) / nano) })
	}
	_ = w.Flush() // to a strings.Builder, which never fails
	return b.String()
}

// oneStaging returns m with the wire buffers counted as staging. The allocators measure one number
// for both.
func oneStaging(m Memory) Memory {
	m.Staging, m.Wire = m.Staging+m.Wire, 0
	return m
}

func compareRow(w *tabwriter.Writer, name string, predicted, measured int64, text func(int64) string) {
	switch {
	case predicted == 0 && measured == 0:
	case measured == 0:
		fmt.Fprintf(w, "%s\t%s\t-\t-\t\n", name, text(predicted))
	default:
		fmt.Fprintf(w, "%s\t%s\t%s\t%+.1f%%\t\n", name, text(predicted), text(measured), 100*float64(measured-predicted)/float64(max(predicted, 1)))
	}
}
