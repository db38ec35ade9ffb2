package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/symgrad/symgrad/checkpoint"
)

// newCheckpointCommand returns symgrad checkpoint, which shows, verifies, merges and exports
// checkpoints.
func newCheckpointCommand() *cobra.Command {
	cmd := newGroup("checkpoint", "Show, verify, merge and export checkpoints",
		newCheckpointShowCommand(), newCheckpointVerifyCommand(), newCheckpointMergeCommand(), newCheckpointExportCommand())
	cmd.Long = cmd.Short + `.

DIR is the folder of one checkpoint, for example step-00000200, or the folder of all
checkpoints of a run (checkpoint.dir).`
	return cmd
}

func newCheckpointShowCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "show [flags] DIR",
		Short: "Print the content of a checkpoint",
		Long: `Print the content of a checkpoint: step, ranks, state of solver and sampler, files,
tensors with the files that hold them, and the settings of the run. In a folder with several
checkpoints it shows the newest one with consistent manifest and file sizes. The content of the
files is not read; symgrad checkpoint verify does that.`,
		Example: `  symgrad checkpoint show runs/mnist/checkpoints
  symgrad checkpoint show --json runs/mnist/checkpoints/step-00000200`,
		Args:              usageArgs(oneFolder),
		ValidArgsFunction: completeFolder,
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			c, rejected, err := openForShow(args[0])
			if err != nil {
				return err
			}
			defer func() { err = errors.Join(err, c.Close()) }()
			text := checkpointText(c, rejected)
			if asJSON {
				if text, err = checkpointJSON(c, rejected); err != nil {
					return err
				}
			}
			return write(cmd.OutOrStdout(), text)
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print the manifest as JSON")
	return cmd
}

func newCheckpointVerifyCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "verify DIR",
		Short: "Read all checkpoints completely and compare checksums",
		Long: `Read all checkpoints completely and compare checksums. A folder that ends in .tmp is an
unfinished checkpoint: it is listed and does not count. A checkpoint that is being removed (its
folder ends in .removed.tmp), or that a run removes meanwhile, does not count either.

Exit codes: 0 all checkpoints are complete, 1 one is not, or there is none.`,
		Example:           `  symgrad checkpoint verify runs/mnist/checkpoints`,
		Args:              usageArgs(oneFolder),
		ValidArgsFunction: completeFolder,
		RunE: func(cmd *cobra.Command, args []string) error {
			paths, err := checkpointsIn(args[0])
			if err != nil {
				return err
			}
			whole, errs := 0, []error(nil)
			for _, path := range paths {
				line, err := verifyOne(path)
				switch {
				case errors.Is(err, checkpoint.ErrUnfinished):
					line, err = fmt.Sprintf("%s: not finished\n", path), nil
				case errors.Is(err, checkpoint.ErrNone) && path != args[0]:
					line, err = fmt.Sprintf("%s: removed meanwhile\n", path), nil
				case err == nil:
					whole++
				}
				errs = append(errs, err, write(cmd.OutOrStdout(), []byte(line)))
			}
			if err := errors.Join(errs...); err != nil {
				return err
			}
			if whole == 0 {
				return fmt.Errorf("%w in %s", checkpoint.ErrNone, args[0])
			}
			return nil
		},
	}
}

func newCheckpointMergeCommand() *cobra.Command {
	var out string
	var all bool
	cmd := &cobra.Command{
		Use:   "merge --out FILE [flags] DIR",
		Short: "Write the parameters to one safetensors file",
		Long: `Write the parameters to one safetensors file, for other programs. Each parameter is complete
and has its own name, for any number of ranks that wrote the checkpoint. In a folder with several
checkpoints it takes the newest complete one. The checkpoint is verified first. If FILE is a pipe
or a device, such as /dev/stdout, the report goes to the standard error.`,
		Example: `  symgrad checkpoint merge --out mnist.safetensors runs/mnist/checkpoints
  python3 -c 'from safetensors.numpy import load_file; print(load_file("mnist.safetensors").keys())'`,
		Args:              usageArgs(oneFolder),
		ValidArgsFunction: completeFolder,
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			if out == "" {
				return usageError{errors.New("--out is missing: add --out FILE")}
			}
			c, err := checkpoint.Open(args[0])
			if err != nil {
				return err
			}
			defer func() { err = errors.Join(err, c.Close()) }()
			var roles []checkpoint.Role // none means parameters and buffers
			if all {
				roles = checkpoint.Roles()
			}
			tensors, bytes, err := c.Merge(out, roles...)
			if err != nil {
				return fmt.Errorf("--out: %w", err)
			}
			report := cmd.OutOrStdout()
			if info, err := os.Stat(out); err == nil && !info.Mode().IsRegular() {
				report = cmd.ErrOrStderr() // on the same pipe it would become part of the file
			}
			return write(report, fmt.Appendf(nil, "%s: %d tensors, %d B, of %s\n", out, tensors, bytes, c.Path()))
		},
	}
	cmd.Flags().StringVarP(&out, "out", "o", "", "file to write")
	cmd.Flags().BoolVar(&all, "all", false, "include solver state, averages and residuals")
	return cmd
}

// oneFolder requires one argument.
func oneFolder(_ *cobra.Command, args []string) error {
	if len(args) != 1 {
		return fmt.Errorf("want one folder, got %d arguments", len(args))
	}
	return nil
}

// completeFolder completes the names of folders.
func completeFolder(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	return nil, cobra.ShellCompDirectiveFilterDirs
}

// checkpointsIn returns dir if it is a checkpoint, else the checkpoints in it, the newest first.
func checkpointsIn(dir string) ([]string, error) {
	if checkpoint.Is(dir) {
		return []string{dir}, nil
	}
	return checkpoint.List(dir)
}

// openForShow opens the newest consistent checkpoint, without reading the elements.
func openForShow(dir string) (*checkpoint.Checkpoint, []checkpoint.Rejected, error) {
	paths, err := checkpointsIn(dir)
	if err != nil {
		return nil, nil, err
	}
	var rejected []checkpoint.Rejected
	errs := []error{fmt.Errorf("%w in %s", checkpoint.ErrNone, dir)}
	for _, path := range paths {
		c, err := checkpoint.OpenAt(path, checkpoint.VerifySizes)
		if err == nil {
			return c, rejected, nil
		}
		rejected = append(rejected, checkpoint.Rejected{Path: path, Err: err})
		errs = append(errs, err)
	}
	return nil, nil, errors.Join(errs...)
}

// verifyOne returns verify's line for a complete checkpoint.
func verifyOne(path string) (string, error) {
	c, err := checkpoint.OpenAt(path, checkpoint.VerifyAll)
	if err != nil {
		return "", err
	}
	var bytes int64
	for _, f := range c.Manifest().Files {
		bytes += f.Bytes
	}
	line := fmt.Sprintf("%s: ok, %d files, %d B, %d tensors\n", filepath.Clean(path), len(c.Manifest().Files), bytes, len(c.Tensors()))
	return line, c.Close()
}
