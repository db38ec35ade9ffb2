package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/symgrad/symgrad/internal/tool/curves"
	"github.com/symgrad/symgrad/internal/tool/drawing"
	"github.com/symgrad/symgrad/metrics"
)

// newPlotCommand returns symgrad plot.
func newPlotCommand() *cobra.Command {
	var o curves.Options
	var out string
	cmd := &cobra.Command{
		Use:   "plot [flags] RUN...",
		Short: "Draw the metrics of runs, and compare them",
		Long: `Draw the metrics of runs: a panel for each metric, with a curve for each run.

A RUN is the output folder of a run, or a file of metrics. It may be in progress. The ending
of --out is the format: .html is a page for a browser that shows the values under the
pointer and needs no network; .svg and .png are pictures.`,
		Example: `  symgrad plot runs/mnist-mlp
  symgrad plot --out loss.png --metric loss,val_loss --smooth 0.9 runs/a runs/b
  symgrad plot --out time.svg --x seconds --log runs/*`,
		Args: usageArgs(someRuns),
		RunE: func(cmd *cobra.Command, args []string) error {
			format, err := drawing.FormatOf(out, drawing.HTML, drawing.SVG, drawing.PNG)
			if err == nil {
				err = canBeFile(out)
			}
			if err == nil {
				err = o.Validate()
			}
			if err != nil {
				return usageError{fmt.Errorf("plot: %w", err)}
			}
			return plotRuns(cmd, args, out, format, o)
		},
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.StringVar(&out, "out", "curves.html", "file to write: .html, .svg or .png")
	flags.StringSliceVar(&o.Metrics, "metric", nil, "comma-separated metrics, such as loss,val_loss; empty means all")
	flags.StringVar(&o.Over, "x", metrics.Step, "horizontal axis: "+strings.Join(curves.Axes, ", "))
	flags.Float64Var(&o.Smooth, "smooth", 0, "weight of earlier values in a moving average, 0 to below 1; 0 means none")
	flags.BoolVar(&o.Log, "log", false, "logarithmic vertical axis, for metrics that are always above 0")
	return cmd
}

// plotRuns draws the runs into a file, which it writes only if all of it can be drawn.
func plotRuns(cmd *cobra.Command, paths []string, out string, format drawing.Format, o curves.Options) error {
	runs, err := curves.Read(paths)
	if err != nil {
		return fmt.Errorf("plot: %w", err)
	}
	var text bytes.Buffer
	if format == drawing.HTML {
		err = curves.WritePage(&text, runs, o)
	} else {
		err = curves.Draw(&text, format, runs, o)
	}
	if err != nil {
		return fmt.Errorf("plot: %w", err)
	}
	if err := os.WriteFile(out, text.Bytes(), 0o666); err != nil {
		return fmt.Errorf("plot: --out: %w", err)
	}
	return write(cmd.OutOrStdout(), []byte(out+"\n"))
}

// someRuns requires one argument or more.
func someRuns(_ *cobra.Command, args []string) error {
	if len(args) == 0 {
		return errors.New("name the output folder of one run or more")
	}
	return nil
}
