package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/signal"
	"slices"

	"github.com/spf13/cobra"

	"github.com/symgrad/symgrad/config"
	"github.com/symgrad/symgrad/dist/backend"
	"github.com/symgrad/symgrad/dist/launch"
	"github.com/symgrad/symgrad/internal/cli"
	"github.com/symgrad/symgrad/internal/gpu"
	"github.com/symgrad/symgrad/internal/probe"
)

// probeCommand is the hidden command that asks one library, in a process of its own.
const probeCommand = "doctor-probe"

// newDoctorCommand is symgrad doctor: the parts of this machine, and whether they work.
func newDoctorCommand() *cobra.Command {
	source := newSource()
	var asJSON bool
	var files map[string]string
	cmd := &cobra.Command{
		Use:   "doctor [flags]",
		Short: "Report cores, memory, GPUs and libraries of this machine, and the choice among them",
		Long: `Report the parts of this machine for training, and the choice among them: processors,
memory, limits, matrix libraries, MPI, GPUs and their libraries, launchers, backends.

For GPUs it lists the engines between them, with the reason for each unusable one, and
the table by which the fastest is chosen (symgrad tune, comm.tune).

Each library is loaded by a process of its own, so that none can harm the report.
A file that --lib or the settings name is the one; of NCCL and NVSHMEM else that of
NCCL_HOME and NVSHMEM_HOME. Others are looked for where the loader looks, in CUDA_HOME,
CUDA_PATH and the like, in the site-packages of the Python on the PATH, and in the
usual folders.

Exit codes: 0 if programs would start here with the chosen parts, 1 if not, 2 for invalid
flags or settings. It opens a world of two ranks on the host. It judges GPUs by their
device files and libraries.`,
		Example: `  symgrad doctor
  symgrad doctor --json | jq .gpus.devices
  symgrad doctor --lib nccl=/opt/nccl/lib/libnccl.so.2 --set cpu.blas=libopenblas.so.0
  symgrad doctor --set run.device=cuda --set comm.backend=cuda --set comm.tune=tune.json`,
		Args: usageArgs(noArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, _, err := loadSettings(*source)
			if err != nil {
				return err
			}
			options, err := doctorOptions(cfg, files)
			if err != nil {
				return err
			}
			report, err := examine(cmd.Context(), options)
			if err != nil {
				return err
			}
			text := []byte(cli.Wrap(string(doctorText(report)), launch.Columns(cmd.OutOrStdout()), 12))
			if asJSON {
				if text, err = doctorJSON(report); err != nil {
					return err
				}
			}
			if err := write(cmd.OutOrStdout(), text); err != nil {
				return err
			}
			if !report.OK {
				return &exitError{code: exitFailure} // the report has said why
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print the report as JSON, whose keys are stable")
	cmd.Flags().StringToStringVar(&files, "lib", nil, "look at this file for a library, and at no other: nccl=/opt/libnccl.so.2 (repeatable)")
	addSourceFlags(cmd, source)
	return cmd
}

// doctorOptions returns the options of the search by flags and settings.
// Errors: usageError for an unknown library.
func doctorOptions(cfg *config.Config, files map[string]string) (probe.Options, error) {
	o := probe.Options{Files: maps.Clone(files)}
	if o.Files == nil {
		o.Files = map[string]string{}
	}
	if err := o.Validate(); err != nil {
		return o, usageError{fmt.Errorf("--lib: %w", err)}
	}
	switch _, set := o.Files["blas"]; {
	case set || cfg.CPU.BLAS == "auto":
	case cfg.CPU.BLAS == "gonum":
		o.NoBLAS = true
	default:
		o.Files["blas"] = cfg.CPU.BLAS
	}
	for _, l := range []struct{ product, file string }{
		{"cuda-driver", cfg.GPU.Driver}, {"nvrtc", cfg.GPU.NVRTC}, {"nccl", cfg.GPU.NCCL}, {"nvshmem", cfg.GPU.NVSHMEM},
	} {
		if _, set := o.Files[l.product]; !set && l.file != "" {
			o.Files[l.product] = l.file
		}
	}
	o.Settings = gpuConfig(cfg)
	o.Settings.Backend, o.Settings.Device = cfg.Comm.Backend, cfg.Run.Device
	o.Ranks = cfg.Launch.NprocPerNode
	o.Table = func(machine string) probe.Table { return chooserTable(cfg.Comm.Tune, machine) }
	return o, nil
}

// chooserTable is the table in a file, or for no file that of the program for GPUs of a name.
func chooserTable(file, machine string) probe.Table {
	t := probe.Table{File: file}
	table, err := gpu.BuiltinTable(machine)
	if file != "" {
		table, err = backend.ReadTable(file)
	}
	if err != nil {
		t.Problem = err.Error()
		return t
	}
	t.Machine, t.Rows, t.Hash, t.Lines = table.Machine, len(table.Rows), table.Hash(), tableText(table, 0)
	return t
}

// examine collects the report; an interrupt ends the questions to libraries.
func examine(ctx context.Context, o probe.Options) (probe.Report, error) {
	if ctx == nil {
		ctx = context.Background()
	}
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt)
	defer stop()
	exe, err := os.Executable()
	if err != nil {
		return probe.Report{}, fmt.Errorf("find this program, to ask libraries with: %w", err)
	}
	report := probe.Collect(ctx, probe.This(os.Environ(), probe.Child(exe, probeCommand)), o)
	if ctx.Err() != nil {
		return probe.Report{}, errors.New("interrupted")
	}
	return report, nil
}

// doctorJSON is the report for programs; "<" and the like stay as they are.
func doctorJSON(report probe.Report) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	err := e.Encode(report)
	return b.Bytes(), err
}

// newDoctorProbeCommand is the process that one library is loaded into.
func newDoctorProbeCommand() *cobra.Command {
	return &cobra.Command{
		Use:    probeCommand + " PRODUCT FILE",
		Short:  "Load one library and print its answer, for symgrad doctor",
		Hidden: true,
		Args:   usageArgs(cobra.ExactArgs(2)),
		RunE: func(cmd *cobra.Command, args []string) error {
			if !slices.Contains(probe.ProductNames(), args[0]) {
				return usageError{fmt.Errorf("%s: no library is called %q", cmd.CommandPath(), args[0])}
			}
			return probe.Reply(args, cmd.OutOrStdout())
		},
	}
}
