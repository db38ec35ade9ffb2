package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// grid is a Markdown table. Its first row is the header.
type grid [][]string

// String returns the lines of the table.
func (g grid) String() string {
	var b strings.Builder
	for i, row := range g {
		fmt.Fprintf(&b, "| %s |\n", strings.Join(row, " | "))
		if i == 0 {
			b.WriteString("|" + strings.Repeat(" --- |", len(row)) + "\n")
		}
	}
	return b.String()
}

// markdown returns the tables of a result of compare or symgrad tune.
//
// Errors: an invalid file, or a file without rows.
func markdown(text []byte) (string, error) {
	var kind struct {
		Near    []float64 `json:"near_ns"`
		Device  string    `json:"device"`
		Version int       `json:"version"`
		Rows    []struct {
			Mode   string `json:"mode"`
			Model  string `json:"model"`
			Hosts  int    `json:"hosts"`
			Memory int64  `json:"memory"`
		} `json:"rows"`
	}
	if err := json.Unmarshal(text, &kind); err != nil {
		return "", err
	}
	var read func(text []byte) ([]grid, error)
	switch {
	case len(kind.Rows) == 0:
		return "", errors.New("no rows")
	case kind.Near != nil:
		read = hostTables
	case kind.Rows[0].Memory > 0:
		read = gpt2Tables
	case kind.Rows[0].Hosts > 0:
		read = hostsTables
	case kind.Device != "" && kind.Rows[0].Model != "":
		read = trainTables
	case kind.Rows[0].Mode != "":
		read = gpuTables
	case kind.Version != 0:
		read = tuneTables
	default:
		return "", errors.New("not a result of compare or symgrad tune")
	}
	grids, err := read(text)
	if err != nil {
		return "", err
	}
	var tables []string
	for _, g := range grids {
		tables = append(tables, g.String())
	}
	return strings.Join(tables, "\n"), nil
}

// The lines of a document that enclose the tables of a file, which is relative to the module's
// root.
var (
	tableBegin = regexp.MustCompile(`(?m)^<!-- table: `)
	tableEnd   = regexp.MustCompile(`(?m)^<!-- /table -->$`)
	tableBlock = regexp.MustCompile(`(?ms)^(<!-- table: (\S+) -->\n)(.*?)^(<!-- /table -->)$`)
)

// fill returns the document with the tables of its files in all blocks.
//
// Errors: a file that cannot be read or has no tables; a marker without a counterpart.
func fill(document string, read func(name string) ([]byte, error)) (string, error) {
	blocks := len(tableBlock.FindAllString(document, -1))
	begin := len(tableBegin.FindAllString(document, -1))
	end := len(tableEnd.FindAllString(document, -1))
	if begin != blocks || end != blocks {
		return "", fmt.Errorf("%d table begin markers, %d end markers, but %d complete blocks", begin, end, blocks)
	}
	var failed error
	filled := tableBlock.ReplaceAllStringFunc(document, func(block string) string {
		parts := tableBlock.FindStringSubmatch(block)
		text, err := read(parts[2])
		if err == nil {
			var tables string
			if tables, err = markdown(text); err == nil {
				return parts[1] + tables + parts[4]
			}
		}
		failed = errors.Join(failed, fmt.Errorf("%s: %w", parts[2], err))
		return block
	})
	return filled, failed
}

// tableCommand runs the command compare table.
// Returns: its exit code.
func tableCommand(args []string, stdout, stderr io.Writer) int {
	flags := flag.NewFlagSet("compare table", flag.ContinueOnError)
	flags.SetOutput(stderr)
	write := flags.Bool("w", false, "rewrite the tables of documents; their files are relative to the current folder")
	flags.Usage = func() {
		fmt.Fprintln(stderr, "usage: compare table FILE...\n       compare table -w DOCUMENT...")
		flags.PrintDefaults()
	}
	switch err := flags.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		return exitOK
	case err != nil:
		return exitUsage
	case flags.NArg() == 0:
		flags.Usage()
		return exitUsage
	}
	for i, name := range flags.Args() {
		if err := writeTables(name, i > 0, *write, stdout); err != nil {
			fmt.Fprintf(stderr, "compare: %s: %v\n", name, err)
			return exitUsage
		}
	}
	return exitOK
}

// writeTables prints the tables of a result file, or rewrites those of a document.
func writeTables(name string, more, write bool, stdout io.Writer) error {
	text, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	if !write {
		tables, err := markdown(text)
		if more && err == nil {
			tables = "\n" + tables
		}
		fmt.Fprint(stdout, tables)
		return err
	}
	filled, err := fill(string(text), os.ReadFile)
	if err != nil || bytes.Equal([]byte(filled), text) {
		return err
	}
	return os.WriteFile(name, []byte(filled), 0o644)
}

// everyOther returns every second one of some ascending powers of two, starting with the first.
func everyOther(sizes []int64) []int64 {
	slices.Sort(sizes)
	sizes = slices.Compact(sizes)
	var kept []int64
	for i := 0; i < len(sizes); i += 2 {
		kept = append(kept, sizes[i])
	}
	return kept
}

// digits returns v with at least three significant digits.
func digits(v float64) string {
	places := 0
	switch {
	case v < 10:
		places = 2
	case v < 100:
		places = 1
	}
	return strconv.FormatFloat(v, 'f', places, 64)
}

// span returns the range of some values, or "-" if there are none.
func span(values []float64) string {
	if len(values) == 0 {
		return "-"
	}
	low, high := digits(slices.Min(values)), digits(slices.Max(values))
	if low == high {
		return low
	}
	return low + " to " + high
}

// title returns the name of an operation in a document.
func title(op string) string {
	switch op {
	case "reducescatter":
		return "reduce-scatter"
	case "allgather":
		return "all-gather"
	case "alltoall":
		return "all-to-all"
	}
	return op
}
