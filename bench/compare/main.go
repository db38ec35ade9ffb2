// Command compare judges the measurements of the scripts in bench/:
//
//	compare [-o FILE] FOLDER        of bench/mpi.sh
//	compare gpu [-o FILE] FOLDER    of bench/gpu.sh
//	compare train [-o FILE] FOLDER  of bench/train.sh
//
// The folder of bench/mpi.sh has session.json and one folder for each batch: unit.json describes
// the measurement, before.json and after.json have the results of the probe, and each engine has a
// file with its rows: ENGINE.jsonl of collbench, symgrad.json of symgrad bench. A batch counts if
// both probes called the cores near.
//
// Every time is the least over the batches that count: disturbances make a batch slower, and some
// cores move apart and back between two probes. The best engine of a row is the one, other than
// symgrad, with the smallest time. A ratio is symgrad's time over that one's, so below 1 symgrad is
// faster. Printed are a table for each operation and style of measurement, and a line for each
// criterion. FILE gets all of it as JSON, one row a line.
//
// The folder of bench/gpu.sh has session.json and any number of results: *.json of symgrad bench
// and of gpu/torch_yardstick.py, and nccl-tests.OPERATION.*.txt, the tables of nccl-tests. A time
// is the median over the results of median_us.
//
// The folder of bench/train.sh has session.json and a result for each run,
// SIDE.MODEL.PRECISION.RANKS.ROUND.json: of --json of a program of examples/ for symgrad, of
// train/ddp.py for torch. A time is the median over the rounds.
//
// compare table FILE... prints Markdown tables of such results, and of files of symgrad tune.
// compare table -w DOCUMENT... writes them into documents, between a line
// <!-- table: FILE --> and a line <!-- /table -->; files are named from the current folder.
//
// The package shares no code with the judged programs.
//
// Exit codes: 0 when every criterion holds, 1 when one does not or was not measured, 2 for a
// command line that makes no sense or a folder that cannot be read.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
)

const (
	exitOK      = 0
	exitFailure = 1
	exitUsage   = 2
)

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

// run is the program.
// Returns: its exit code.
func run(args []string, stdout, stderr io.Writer) int {
	if len(args) > 0 && args[0] == "gpu" {
		return command("compare gpu", args[1:], stdout, stderr, func(folder string) (result, error) {
			s, err := readGPUs(folder)
			if err != nil {
				return nil, err
			}
			return newGPUReport(s), nil
		})
	}
	if len(args) > 0 && args[0] == "train" {
		return command("compare train", args[1:], stdout, stderr, func(folder string) (result, error) {
			s, err := readTraining(folder)
			if err != nil {
				return nil, err
			}
			return newTrainReport(s), nil
		})
	}
	if len(args) > 0 && args[0] == "table" {
		return tableCommand(args[1:], stdout, stderr)
	}
	return command("compare", args, stdout, stderr, func(folder string) (result, error) {
		s, err := readSession(folder)
		if err != nil {
			return nil, err
		}
		return newReport(s), nil
	})
}

// result is the report on a folder of measurements.
type result interface {
	print(w io.Writer)
	fields() []field // of the result file
	holds() bool
}

// command is the command name [-o FILE] FOLDER.
// Returns: its exit code.
func command(name string, args []string, stdout, stderr io.Writer, read func(folder string) (result, error)) int {
	flags := flag.NewFlagSet(name, flag.ContinueOnError)
	flags.SetOutput(stderr)
	file := flags.String("o", "", "`FILE` for the times, ratios and verdicts")
	flags.Usage = func() {
		fmt.Fprintf(stderr, "usage: %s [-o FILE] FOLDER\n", name)
		flags.PrintDefaults()
	}
	switch err := flags.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		return exitOK
	case err != nil:
		return exitUsage
	case flags.NArg() != 1:
		flags.Usage()
		return exitUsage
	}
	v, err := read(flags.Arg(0))
	if err != nil {
		fmt.Fprintln(stderr, "compare:", err)
		return exitUsage
	}
	v.print(stdout)
	if *file != "" {
		if err := save(*file, v.fields()); err != nil {
			fmt.Fprintln(stderr, "compare:", err)
			return exitUsage
		}
		fmt.Fprintf(stdout, "\nwritten to %s\n", *file)
	}
	if !v.holds() {
		return exitFailure
	}
	return exitOK
}
