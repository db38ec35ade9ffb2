package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/spf13/cobra"

	"github.com/symgrad/symgrad/config"
	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/internal/plan"
)

// newPlanCommand is symgrad plan: it predicts memory and communication of a run.
func newPlanCommand() *cobra.Command {
	p := &planner{source: newSource()}
	cmd := &cobra.Command{
		Use:   "plan [flags]",
		Short: "Predict memory per rank and communication per step",
		Long: `Predict the needs of a run, without ranks and without a GPU: for each rank the
bytes of parameters, gradients, optimizer state, activations, buffers and inputs; for a
step the collectives, their bytes, and what a rank sends. All four stages of sharding
(shard.stage) stand side by side, and the one of the settings has a star.

The model is built, attached and compiled as the program does it, and not run. That
takes no memory for parameters, gradients or activations, however large they are. Its
size follows from the settings and from the data (data.path), which are looked at for
the size of an image or the characters of a text. Bytes are those of where a rank
computes: of the host, or with run.device=cuda of its GPU, without what the driver
and the libraries keep there (several hundred MiB) and without the data set.

How long the communication takes follows from a bandwidth: --bandwidth is what a rank
sends in GB/s, --probe measures it with allreduces between ranks on this host, in shared
memory. With the time of a step without communication (--step, as measured on one rank)
the part that is waited for is predicted too: a third of the step is taken to be the
forward pass.

Exit codes: 0, 1 for a failure, 2 for flags or settings that make no sense.`,
		Example: `  symgrad plan --config configs/mnist-mlp.yaml -n 4
  symgrad plan --config configs/wide-mlp.yaml --program mlp -n 8 --set run.device=cuda --bandwidth 300 --step 9ms
  symgrad plan --config configs/lm.yaml -n 2 --set shard.stage=2 --probe
  symgrad plan --config configs/mnist-cnn.yaml -n 4 --json | jq '.stages[].volume'`,
		Args: usageArgs(noArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx := cmd.Context()
			if ctx == nil {
				ctx = context.Background()
			}
			given := cmd.Flags().Changed
			p.ranksGiven, p.bandwidthGiven, p.stepGiven = given("ranks"), given("bandwidth"), given("step")
			text, err := p.run(ctx)
			if err != nil {
				return err
			}
			return write(cmd.OutOrStdout(), text)
		},
	}
	p.addTo(cmd)
	return cmd
}

// planner is one run of the command.
type planner struct {
	source    *config.Source
	ranks     int
	program   string
	asJSON    bool
	probe     bool
	bandwidth float64 // GB/s; 0 means not given
	step      time.Duration

	ranksGiven, bandwidthGiven, stepGiven bool
}

func (p *planner) addTo(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.IntVarP(&p.ranks, "ranks", "n", 0, "how many ranks there will be (default launch.nproc_per_node)")
	flags.StringVar(&p.program, "program", "", "whose model it is: ddp, lm or mlp of examples (default lm for a transformer, else ddp)")
	flags.BoolVar(&p.asJSON, "json", false, "print the plan as JSON, whose keys are stable")
	flags.BoolVar(&p.probe, "probe", false, "measure the bandwidth between ranks of this host, for some seconds")
	flags.Float64Var(&p.bandwidth, "bandwidth", 0, "bandwidth of each rank in GB/s, instead of a probe")
	flags.DurationVar(&p.step, "step", 0, "time of a step without communication, as measured")
	addSourceFlags(cmd, p.source)
	complete(cmd, "program", cobra.FixedCompletions(planPrograms(), cobra.ShellCompDirectiveNoFileComp))
}

// run is the text of the plan.
func (p *planner) run(ctx context.Context) ([]byte, error) {
	if err := p.check(); err != nil {
		return nil, usageError{fmt.Errorf("plan: %w", err)}
	}
	cfg, _, err := loadSettings(*p.source)
	if err != nil {
		return nil, err
	}
	made, err := planOf(cfg, p.program, p.ranksOf(cfg))
	if err != nil {
		return nil, err
	}
	link, err := p.link(ctx, made.Ranks)
	if err != nil {
		return nil, err
	}
	if link != nil {
		made.Predict(link, p.step, cfg.DDP.Overlap)
	}
	if p.asJSON {
		text, err := json.MarshalIndent(made, "", "  ")
		return append(text, '\n'), err
	}
	return []byte(made.String()), nil
}

// check finds flags that make no sense, whatever the settings are.
func (p *planner) check() error {
	switch {
	case p.ranksGiven && checkRanks(p.ranks) != nil:
		return checkRanks(p.ranks)
	case p.bandwidthGiven && !(p.bandwidth >= plan.LeastGBps && p.bandwidth <= math.MaxFloat64):
		return fmt.Errorf("--bandwidth %v: want a positive number of GB/s, at least %v", p.bandwidth, plan.LeastGBps)
	case p.probe && p.bandwidth > 0:
		return errors.New("--probe or --bandwidth: choose one")
	case p.stepGiven && p.step <= 0:
		return fmt.Errorf("--step %v: want a positive time", p.step)
	case p.step > 0 && !p.probe && p.bandwidth == 0:
		return errors.New("--step needs a communication time: add --probe or --bandwidth")
	}
	return nil
}

func (p *planner) ranksOf(cfg *config.Config) int {
	if p.ranksGiven {
		return p.ranks
	}
	return max(cfg.Launch.NprocPerNode, 1)
}

// planOf is the plan of a program's run.
//
// Errors: usageError for settings that such a run cannot have.
func planOf(cfg *config.Config, program string, ranks int) (*plan.Plan, error) {
	j, err := lookAt(cfg, program, ranks)
	if err != nil {
		return nil, err
	}
	made, err := plan.New(j)
	if err != nil {
		return nil, usageError{fmt.Errorf("plan: %w", err)}
	}
	return made, nil
}

// lookAt collects the inputs of a plan.
func lookAt(cfg *config.Config, program string, ranks int) (plan.Job, error) {
	s, err := planSubject(cfg, program, ranks)
	if err != nil {
		return plan.Job{}, usageError{fmt.Errorf("plan: %w", err)}
	}
	j, err := plan.Look(s)
	if err != nil {
		err = fmt.Errorf("plan: %w", err)
	}
	if errors.Is(err, plan.ErrJob) || errors.Is(err, dist.ErrInvalid) {
		err = usageError{err}
	}
	return j, err
}

// link returns the times of collectives; nil if they are not needed.
func (p *planner) link(ctx context.Context, ranks int) (*plan.Link, error) {
	switch {
	case p.bandwidth > 0:
		return plan.Given(p.bandwidth)
	case p.probe:
		return probeLink(ctx, ranks)
	}
	return nil, nil
}
