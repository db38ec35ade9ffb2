package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/symgrad/symgrad/checkpoint"
)

// checkpointText returns the output of symgrad checkpoint show.
func checkpointText(c *checkpoint.Checkpoint, rejected []checkpoint.Rejected) []byte {
	m := c.Manifest()
	rows := [][]string{
		{"checkpoint", c.Path()},
		{"step", fmt.Sprint(m.Step)},
		{"ranks", fmt.Sprint(m.WorldSize)},
		{"stage", fmt.Sprint(m.Stage)},
		{"solver", fmt.Sprintf("%s, %d steps, %d skipped", cmp.Or(m.Solver.Name, "none"), m.Solver.Steps, m.Solver.Skipped)},
		{"sampler", rawText(m.Sampler)},
		{"loss scale", rawText(m.Scaler)},
		{"config hash", cmp.Or(m.ConfigHash, "none")},
		{"plan hash", cmp.Or(m.PlanHash, "none")},
	}
	for i, r := range m.Random {
		rows = append(rows, []string{fmt.Sprintf("random %d", i), rawText(r)})
	}
	for _, role := range checkpoint.Roles() {
		if n, elements, bytes := totals(c, role); n > 0 {
			rows = append(rows, []string{string(role), fmt.Sprintf("%d tensors, %d elements, %d B", n, elements, bytes)})
		}
	}
	var b bytes.Buffer
	b.Write(table(rows))
	for _, r := range rejected {
		state := "broken"
		if errors.Is(r.Err, checkpoint.ErrUnfinished) {
			state = "unfinished"
		}
		fmt.Fprintf(&b, "%-11s  %v\n", state, r.Err)
	}
	rows = [][]string{{"FILE", "RANK", "BYTES", "CRC32C"}}
	for _, f := range m.Files {
		rows = append(rows, []string{f.Name, fmt.Sprint(f.Rank), fmt.Sprint(f.Bytes), f.CRC32C})
	}
	b.WriteByte('\n')
	b.Write(table(rows))
	rows = [][]string{{"TENSOR", "ROLE", "DTYPE", "SHAPE", "BYTES", "WHERE"}}
	for i, t := range c.Tensors() {
		rows = append(rows, []string{t.Name, string(t.Role), t.DType.String(), fmt.Sprint(t.Shape), fmt.Sprint(t.Bytes()), whereText(m.Tensors[i].Runs)})
	}
	b.WriteByte('\n')
	b.Write(table(rows))
	if m.Config != "" {
		fmt.Fprintf(&b, "\nCONFIG\n%s\n", strings.TrimSuffix(m.Config, "\n"))
	}
	return b.Bytes()
}

// totals returns the number of tensors of a role, their elements and bytes.
func totals(c *checkpoint.Checkpoint, role checkpoint.Role) (n, elements int, bytes int64) {
	for _, t := range c.Tensors() {
		if t.Role == role {
			n, elements, bytes = n+1, elements+t.Len(), bytes+t.Bytes()
		}
	}
	return n, elements, bytes
}

// whereText returns "all in file 0", or the range of elements in each file.
func whereText(runs []checkpoint.RunInfo) string {
	if len(runs) == 1 {
		return fmt.Sprintf("all in file %d", runs[0].File)
	}
	parts := make([]string, len(runs))
	for i, r := range runs {
		parts[i] = fmt.Sprintf("[%d:%d] in %d", r.Offset, r.Offset+r.Len, r.File)
	}
	return strings.Join(parts, ", ")
}

// rawText returns raw, or "none" for nil.
func rawText(raw json.RawMessage) string {
	if raw == nil {
		return "none"
	}
	return string(raw)
}

// checkpointJSON returns the path, the manifest, and the checkpoints that were skipped.
func checkpointJSON(c *checkpoint.Checkpoint, rejected []checkpoint.Rejected) ([]byte, error) {
	type broken struct {
		Path  string `json:"path"`
		Error string `json:"error"`
	}
	out := struct {
		Path     string               `json:"path"`
		Manifest *checkpoint.Manifest `json:"manifest"`
		Broken   []broken             `json:"broken,omitempty"`
	}{Path: c.Path(), Manifest: c.Manifest()}
	for _, r := range rejected {
		out.Broken = append(out.Broken, broken{r.Path, r.Err.Error()})
	}
	text, err := json.MarshalIndent(out, "", "  ")
	return append(text, '\n'), err
}
