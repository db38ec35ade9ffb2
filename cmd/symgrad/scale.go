package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/symgrad/symgrad/internal/net/hostcost"
	"github.com/symgrad/symgrad/internal/net/hostsim"
)

// newScaleCommand returns symgrad scale, which predicts how a job scales over hosts.
func newScaleCommand() *cobra.Command {
	var s scaler
	cmd := &cobra.Command{
		Use:   "scale [flags]",
		Short: "Predict allreduces and the meeting of ranks on many hosts",
		Long: `Predict the time of an allreduce with each algorithm, the cost of the meeting of all ranks,
and the time until a lost host is named, for any number of hosts. Nothing is started. Times
of an allreduce are those of a simulation, message by message; a time after ~ is that of a
formula, for runs of many messages. A star marks the algorithm that is chosen for sums in
rank order.

Exit codes: 0 success, 1 failure, 2 invalid flags.`,
		Example: `  symgrad scale --hosts 128 --ranks 1024
  symgrad scale --hosts 2048 --ranks 16384 --latency 2us --bandwidth 25
  symgrad scale --hosts 4 --ranks 32 --json | jq '.meeting'`,
		Args: usageArgs(noArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			text, err := s.run()
			if err != nil {
				return err
			}
			return write(cmd.OutOrStdout(), text)
		},
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.IntVar(&s.hosts, "hosts", 2, "number of hosts")
	flags.IntVar(&s.ranks, "ranks", 0, "number of ranks on all hosts (default one each)")
	flags.DurationVar(&s.latency, "latency", 10*time.Microsecond, "time of an empty message from host to host")
	flags.Float64Var(&s.bandwidth, "bandwidth", 1.25, "GB/s of a host's link in each direction")
	flags.IntVar(&s.messages, "messages", 200_000, "most messages of a simulated allreduce")
	flags.BoolVar(&s.asJSON, "json", false, "print the report as JSON with stable keys")
	return cmd
}

// scaler is one run of the command.
type scaler struct {
	hosts, ranks, messages int
	latency                time.Duration
	bandwidth              float64 // GB/s
	asJSON                 bool
}

// scaleReport is the output of the command.
type scaleReport struct {
	Net       hostcost.Net    `json:"net"`
	AllReduce []scaleRow      `json:"allreduce"`
	Meeting   []hostcost.Cost `json:"meeting"`
	Silence   float64         `json:"silence_s"` // after which a host counts as lost
	Named     float64         `json:"named_s"`   // until all ranks know a lost host
}

// scaleRow is an allreduce of one size.
type scaleRow struct {
	Bytes  int64              `json:"bytes"`
	Chosen hostcost.Algorithm `json:"chosen"`
	Times  []scaleTime        `json:"times"`
}

// scaleTime is the time of one algorithm.
type scaleTime struct {
	Algorithm hostcost.Algorithm `json:"algorithm"`
	Seconds   float64            `json:"seconds"`
	Simulated bool               `json:"simulated"`
}

// hostSilence is the default of internal/net/hosts: seconds after which a silent host counts as
// lost.
const hostSilence = 4

func (s *scaler) run() ([]byte, error) {
	if s.ranks == 0 {
		s.ranks = s.hosts
	}
	if s.hosts < 2 || s.ranks < s.hosts || s.ranks%s.hosts != 0 {
		return nil, usageError{fmt.Errorf("scale: --hosts %d --ranks %d: want 2 hosts or more, and a multiple of ranks", s.hosts, s.ranks)}
	}
	if !(s.latency > 0) || !(s.bandwidth > 0) {
		return nil, usageError{fmt.Errorf("scale: --latency %v --bandwidth %v: want positive numbers", s.latency, s.bandwidth)}
	}
	net := hostcost.Net{Hosts: s.hosts, Ranks: s.ranks / s.hosts, Latency: s.latency.Seconds(), Bandwidth: s.bandwidth * 1e9}.WithDefaults()
	if err := net.Validate(); err != nil {
		return nil, usageError{fmt.Errorf("scale: %w", err)}
	}
	r := scaleReport{Net: net, Meeting: net.Meeting(), Silence: hostSilence, Named: hostsim.Silence(net, hostSilence, 1).All}
	for _, bytes := range []int64{8, 1 << 10, 64 << 10, 1 << 20, 25 << 20, 256 << 20} {
		row := scaleRow{Bytes: bytes, Chosen: hostcost.Choose(net, bytes, true).Algorithm}
		for _, a := range hostcost.All() {
			t, simulated, err := hostsim.Seconds(a, net, bytes, s.messages)
			if err != nil {
				return nil, fmt.Errorf("scale: %w", err)
			}
			row.Times = append(row.Times, scaleTime{a, t, simulated})
		}
		r.AllReduce = append(r.AllReduce, row)
	}
	if s.asJSON {
		text, err := json.MarshalIndent(r, "", "  ")
		return append(text, '\n'), err
	}
	return []byte(r.String()), nil
}

// String returns the report as tables.
func (r *scaleReport) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "net    %d hosts with %d ranks each; a message takes %s, a link moves %.3g GB/s\n\n",
		r.Net.Hosts, r.Net.Ranks, shortTime(r.Net.Latency), r.Net.Bandwidth/1e9)
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprint(w, "allreduce\t")
	for _, t := range r.AllReduce[0].Times {
		order := ""
		if t.Algorithm.InRankOrder() {
			order = " (in order)"
		}
		fmt.Fprintf(w, "%v%s\t", t.Algorithm, order)
	}
	fmt.Fprintln(w)
	for _, row := range r.AllReduce {
		fmt.Fprintf(w, "%s\t", shortBytes(row.Bytes))
		for _, t := range row.Times {
			mark := map[bool]string{true: "*"}[t.Algorithm == row.Chosen] + map[bool]string{false: "~"}[t.Simulated]
			fmt.Fprintf(w, "%s%s\t", mark, shortTime(t.Seconds))
		}
		fmt.Fprintln(w)
	}
	fmt.Fprintln(w, "\t\nmeeting\tof\tbytes\ttime\tmost ranks\t")
	for _, c := range r.Meeting {
		when, limit := shortTime(c.Seconds), "-"
		if c.Seconds == 0 {
			when = "-"
		}
		if c.Limit > 0 {
			limit = fmt.Sprint(c.Limit)
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t\n", c.Name, c.Of, shortBytes(c.Bytes), when, limit)
	}
	_ = w.Flush() // to a strings.Builder, which never fails
	fmt.Fprintf(&b, "\nall ranks know a lost host after %s, with a silence of %s\n", shortTime(r.Named), shortTime(r.Silence))
	return b.String()
}

// shortTime formats seconds with three digits: "1.25ms".
func shortTime(s float64) string {
	switch {
	case s >= 1:
		return fmt.Sprintf("%.3gs", s)
	case s >= 1e-3:
		return fmt.Sprintf("%.3gms", s*1e3)
	}
	return fmt.Sprintf("%.3gus", s*1e6)
}

// shortBytes formats bytes with three digits: "25 MiB".
func shortBytes(n int64) string {
	x, k, units := float64(n), 0, []string{"B", "KiB", "MiB", "GiB", "TiB"}
	for ; x >= 1000 && k < len(units)-1; k++ {
		x /= 1024
	}
	return fmt.Sprintf("%.3g %s", x, units[k])
}
