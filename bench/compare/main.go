// Command compare judges the measurements of scripts: compare [-o FILE] FOLDER those of
// bench/mpi.sh, and compare hosts, compare gpu, compare train and compare gpt2 those of the scripts
// of these names. It prints a table per operation and mode and a line per criterion. FILE gets all
// of it as JSON, one row per line.
//
// For bench/mpi.sh, FOLDER has session.json and one folder per batch. In a batch, unit.json has the
// settings, before.json and after.json have the probes, and each engine has a file with its rows:
// ENGINE.jsonl of collbench, symgrad.json of symgrad bench. A batch counts if both probes found the
// cores near each other.
//
// A time is the minimum over the batches that count: disturbances only make a batch slower, and
// some cores move apart and back between two probes. The best engine of a row is the fastest one
// other than symgrad. A ratio is symgrad's time over the best engine's, so below 1 symgrad is
// faster.
//
// For bench/hosts.sh, FOLDER has session.json and a result per run, ENGINE.HOSTSxRANKS.NUMBER.json.
// A time is the minimum over the runs.
//
// For bench/gpu.sh, FOLDER has session.json and any number of results: *.json of symgrad bench and
// of gpu/torch_yardstick.py, and nccl-tests.OPERATION.*.txt, the tables of nccl-tests. A time is
// the median over the results of median_us.
//
// For bench/train.sh, FOLDER has session.json and a result per run,
// SIDE.MODEL.PRECISION.RANKS.ROUND.json: the --json file of a program of examples/ for symgrad, the
// file of train/ddp.py for torch. A time is the median over the rounds.
//
// For bench/gpt2.sh, FOLDER has session.json and a result per run: symgrad.RANKS.summary.json and
// symgrad.RANKS.times.json of examples/gpt2, ENGINE.RANKS.json of train/gpt2.py.
//
// compare table FILE... prints such results, and files of symgrad tune, as Markdown tables. compare
// table -w DOCUMENT... writes them into documents, between a line <!-- table: FILE --> and a line
// <!-- /table -->. Files are relative to the current folder.
//
// The package shares no code with the code that it judges.
//
// Exit codes: 0 all criteria hold, 1 one fails or was not measured, 2 an invalid command line or an
// unreadable folder.
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

// run runs the program.
// Returns: its exit code.
func run(args []string, stdout, stderr io.Writer) int {
	if len(args) > 0 && args[0] == "table" {
		return tableCommand(args[1:], stdout, stderr)
	}
	if len(args) > 0 && readers[args[0]] != nil {
		return command("compare "+args[0], args[1:], stdout, stderr, readers[args[0]])
	}
	return command("compare", args, stdout, stderr, reader(readSession, newReport))
}

// readers read and judge the folders of scripts other than bench/mpi.sh, by command.
var readers = map[string]func(folder string) (result, error){
	"hosts": reader(readHosts, itself[*hostsReport]),
	"gpu":   reader(readGPUs, newGPUReport),
	"train": reader(readTraining, newTrainReport),
	"gpt2":  reader(readGPT2, itself[*gpt2Report]),
}

// reader reads a folder, and judges its measurements.
func reader[S any, R result](read func(folder string) (S, error), judge func(S) R) func(folder string) (result, error) {
	return func(folder string) (result, error) {
		s, err := read(folder)
		if err != nil {
			return nil, err
		}
		return judge(s), nil
	}
}

func itself[R any](r R) R { return r }

// result is the evaluation of a folder of measurements.
type result interface {
	print(w io.Writer)
	fields() []field // of the result file
	holds() bool
}

// command runs the command name [-o FILE] FOLDER.
// Returns: its exit code.
func command(name string, args []string, stdout, stderr io.Writer, read func(folder string) (result, error)) int {
	flags := flag.NewFlagSet(name, flag.ContinueOnError)
	flags.SetOutput(stderr)
	file := flags.String("o", "", "JSON `FILE` for times, ratios and verdicts")
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
