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
	"github.com/symgrad/symgrad/internal/gpu"
	"github.com/symgrad/symgrad/internal/tool/cli"
	"github.com/symgrad/symgrad/internal/tool/probe"
)

// probeCommand is the hidden command that loads one library in a separate process.
const probeCommand = "doctor-probe"

// newDoctorCommand returns symgrad doctor, which reports and tests the machine's support for
// training.
func newDoctorCommand() *cobra.Command {
	source := newSource()
	var asJSON bool
	var files map[string]string
	cmd := &cobra.Command{
		Use:   "doctor [flags]",
		Short: "Report this machine's support for training, and the choices a run would make",
		Long: `Report this machine's support for training, and the choices a run would make:
processors, memory, limits, matrix libraries, MPI, UCX, GPUs and their libraries,
launchers, backends.

For GPUs and for several hosts it lists the engines (implementations of communication),
with the reason for each unavailable one. For GPUs it also shows the table by which the
fastest is chosen (symgrad tune, comm.tune).

Each library is loaded in a separate process, so that none can crash the report. A file
named by --lib or a setting is the only candidate; for NCCL and NVSHMEM the file in
NCCL_HOME or NVSHMEM_HOME is. Other libraries are searched on the loader's path, in
CUDA_HOME, CUDA_PATH and similar variables, in the site-packages of the Python on the
PATH, and in the usual folders.

Exit codes: 0 programs would start here with these choices, 1 they would not, 2 invalid
flags or settings. The command opens a world of two ranks on the host. For GPUs it only
checks devices and libraries.`,
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
				return &exitError{code: exitFailure} // the report has the reason
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print the report as JSON with stable keys")
	cmd.Flags().StringToStringVar(&files, "lib", nil, "only candidate file for a library: nccl=/opt/libnccl.so.2 (repeatable)")
	addSourceFlags(cmd, source)
	return cmd
}

// doctorOptions returns the options of the search from flags and settings. Errors: usageError for
// an unknown library.
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

// chooserTable returns the table in a file, or without a file the built-in table for the named GPU.
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

// examine collects the report. An interrupt ends the questions to libraries.
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

// doctorJSON returns the report as JSON, without escaping "<" and similar characters.
func doctorJSON(report probe.Report) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	err := e.Encode(report)
	return b.Bytes(), err
}

// newDoctorProbeCommand returns the command that runs as the process for one library.
func newDoctorProbeCommand() *cobra.Command {
	return &cobra.Command{
		Use:    probeCommand + " PRODUCT FILE",
		Short:  "Load one library and print its answers, for symgrad doctor",
		Hidden: true,
		Args:   usageArgs(cobra.ExactArgs(2)),
		RunE: func(cmd *cobra.Command, args []string) error {
			if !slices.Contains(probe.ProductNames(), args[0]) {
				return usageError{fmt.Errorf("%s: unknown library %q", nameOf(cmd), args[0])}
			}
			return probe.Reply(args, cmd.OutOrStdout())
		},
	}
}
