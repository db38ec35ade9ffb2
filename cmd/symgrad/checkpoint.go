package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/symgrad/symgrad/checkpoint"
)

// newCheckpointCommand is symgrad checkpoint: the contents of a checkpoint, its verification, and
// one merged file for other programs.
func newCheckpointCommand() *cobra.Command {
	cmd := newGroup("checkpoint", "Show, verify and merge checkpoints",
		newCheckpointShowCommand(), newCheckpointVerifyCommand(), newCheckpointMergeCommand())
	cmd.Long = cmd.Short + `.

DIR is the folder of one checkpoint, step-00000200 for instance, or the folder of a run's
checkpoints, which is what checkpoint.dir says.`
	return cmd
}

func newCheckpointShowCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "show [flags] DIR",
		Short: "Print the tensors of a checkpoint and their files",
		Long: `Print the tensors of a checkpoint and their files: step, ranks, the state of solver and
sampler, files, tensors with their places, and the settings of the run. Of a folder with
several it is the newest whose manifest and files fit together; their content is not read
(symgrad checkpoint verify does that).`,
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
		Short: "Read every byte of every checkpoint and compare checksums",
		Long: `Read every byte of every checkpoint and compare checksums. A folder that ends in .tmp is
being written, or was when its program died: it is named, and does not count. A checkpoint
that is being removed (its folder ends in .removed.tmp), or that a run removes meanwhile,
does not count either.

Exit codes: 0 if all checkpoints are whole, 1 if one is not or there is none.`,
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
		Short: "Write one safetensors file that other programs can read",
		Long: `Write one safetensors file that other programs can read: the parameters under their own
names, each of them whole, whatever the number of ranks that wrote the checkpoint. Of a
folder with several it is the newest whole one. The checkpoint is verified first. With a pipe or a
device for FILE, such as /dev/stdout, the report is printed to the standard error.`,
		Example: `  symgrad checkpoint merge --out mnist.safetensors runs/mnist/checkpoints
  python3 -c 'from safetensors.numpy import load_file; print(load_file("mnist.safetensors").keys())'`,
		Args:              usageArgs(oneFolder),
		ValidArgsFunction: completeFolder,
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			if out == "" {
				return usageError{errors.New("--out: want a file")}
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
				report = cmd.ErrOrStderr() // in a pipe it would be a part of the file
			}
			return write(report, fmt.Appendf(nil, "%s: %d tensors, %d B, of %s\n", out, tensors, bytes, c.Path()))
		},
	}
	cmd.Flags().StringVarP(&out, "out", "o", "", "file to write")
	cmd.Flags().BoolVar(&all, "all", false, "also the state of solvers, averages and residuals")
	return cmd
}

// oneFolder wants one argument.
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

// checkpointsIn is the checkpoint that dir is, or those in it, the newest first.
func checkpointsIn(dir string) ([]string, error) {
	if checkpoint.Is(dir) {
		return []string{dir}, nil
	}
	return checkpoint.List(dir)
}

// openForShow opens the newest checkpoint that fits together, without reading the elements.
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

// verifyOne returns the message of verify about a whole checkpoint.
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
