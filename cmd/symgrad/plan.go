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
	"github.com/symgrad/symgrad/internal/net/hostcost"
	"github.com/symgrad/symgrad/internal/tool/plan"
)

// newPlanCommand returns symgrad plan, which predicts memory and communication of a run.
func newPlanCommand() *cobra.Command {
	p := &planner{source: newSource()}
	cmd := &cobra.Command{
		Use:   "plan [flags]",
		Short: "Predict memory per rank and communication per step",
		Long: `Predict memory and communication of a run, without ranks and without a GPU. The report
has, per rank, the bytes of parameters, gradients, optimizer state, activations, buffers
and inputs, and per step the collectives, their bytes and the bytes that a rank sends. It
covers all four stages of sharding (shard.stage) and marks the configured one with a star.

The model is built, attached and compiled as in the program, but not run. That needs no
memory for parameters, gradients or activations. The size of the model follows from the
settings and from data.path (size of an image, characters of a text). Bytes are those on
the device of a rank: the host, or with run.device=cuda its GPU. They do not include the
data set, nor the memory of driver and libraries (several hundred MiB).

The time of communication needs a bandwidth: --bandwidth is the GB/s that a rank sends,
--probe measures it with allreduces between ranks on this host, in shared memory. With
--hosts, ranks are on so many hosts: --latency is the time of an empty message from host
to host, --bandwidth the GB/s of a host's link in each direction, and each collective has
its time and algorithm. With the time of a step without communication (--step, as measured on one rank) the exposed
communication is predicted as well; the forward pass counts as a third of the step.

Exit codes: 0 success, 1 failure, 2 invalid flags or settings.`,
		Example: `  symgrad plan --config configs/mnist-mlp.yaml -n 4
  symgrad plan --config configs/wide-mlp.yaml --program mlp -n 8 --set run.device=cuda --bandwidth 300 --step 9ms
  symgrad plan --config configs/lm.yaml -n 2 --set shard.stage=2 --probe
  symgrad plan --config configs/mnist-mlp.yaml -n 32 --hosts 4 --latency 10us --bandwidth 1.25
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
	hosts     int           // 0 means not given
	latency   time.Duration // of a message between hosts

	ranksGiven, bandwidthGiven, stepGiven bool
}

func (p *planner) addTo(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.IntVarP(&p.ranks, "ranks", "n", 0, "number of ranks of the run (default launch.nproc_per_node)")
	flags.StringVar(&p.program, "program", "", "program whose model is planned: ddp, lm, gpt2, mlp or resnet of examples (default the first of them that trains model.name and reads data.path)")
	flags.BoolVar(&p.asJSON, "json", false, "print the plan as JSON with stable keys")
	flags.BoolVar(&p.probe, "probe", false, "measure the bandwidth between ranks of this host; takes some seconds")
	flags.Float64Var(&p.bandwidth, "bandwidth", 0, "bandwidth at which each rank sends, in GB/s, instead of --probe")
	flags.IntVar(&p.hosts, "hosts", 0, "number of hosts, with equal numbers of ranks (default one host)")
	flags.DurationVar(&p.latency, "latency", 10*time.Microsecond, "time of an empty message from host to host, with --hosts")
	flags.DurationVar(&p.step, "step", 0, "measured time of a step without communication")
	addSourceFlags(cmd, p.source)
	complete(cmd, "program", cobra.FixedCompletions(planPrograms(), cobra.ShellCompDirectiveNoFileComp))
}

// run returns the text of the plan.
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

// check rejects invalid flags, independent of the settings.
func (p *planner) check() error {
	switch {
	case p.ranksGiven && checkRanks(over(p.ranks, max(p.hosts, 1))) != nil:
		return checkRanks(over(p.ranks, max(p.hosts, 1)))
	case p.bandwidthGiven && !(p.bandwidth >= plan.LeastGBps && p.bandwidth <= math.MaxFloat64):
		return fmt.Errorf("--bandwidth %v: want a positive number of GB/s, at least %v", p.bandwidth, plan.LeastGBps)
	case p.hosts < 0 || p.hosts > hostcost.MostHosts:
		return fmt.Errorf("--hosts %d: want 1 to %d", p.hosts, hostcost.MostHosts)
	case p.latency <= 0:
		return fmt.Errorf("--latency %v: want a positive time", p.latency)
	case p.hosts > 0 && p.probe:
		return errors.New("--probe measures one host: leave it out, or --hosts")
	case p.probe && p.bandwidth > 0:
		return errors.New("--probe or --bandwidth: choose one")
	case p.stepGiven && p.step <= 0:
		return fmt.Errorf("--step %v: want a positive time", p.step)
	case p.step > 0 && !p.probe && p.bandwidth == 0 && p.hosts == 0:
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

// planOf returns the plan of a program's run.
//
// Errors: usageError for settings that the run does not support.
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

// lookAt collects the input of a plan.
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

// link returns the cost model of collectives; nil if no flag asks for times.
func (p *planner) link(ctx context.Context, ranks int) (*plan.Link, error) {
	switch {
	case p.hosts > 1:
		if ranks%p.hosts != 0 {
			return nil, usageError{fmt.Errorf("plan: --hosts %d: %d ranks cannot be spread evenly; set -n to a multiple", p.hosts, ranks)}
		}
		return plan.Between(hostcost.Net{Hosts: p.hosts, Ranks: ranks / p.hosts, Latency: p.latency.Seconds(), Bandwidth: p.bandwidth * 1e9})
	case p.bandwidth > 0:
		return plan.Given(p.bandwidth)
	case p.probe:
		return probeLink(ctx, ranks)
	}
	return nil, nil
}
