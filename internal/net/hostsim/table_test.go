package hostsim

import (
	"bytes"
	"flag"
	"math"
	"os"
	"testing"

	"github.com/symgrad/symgrad/internal/long"
	"github.com/symgrad/symgrad/internal/net/hostcost"
)

var rewrite = flag.Bool("rewrite", false, "write the table of hostcost.Choose again")

const tableFile = "../hostcost/table.go"

// TestTableIsThatOfTheSimulator makes the table of hostcost.Choose again and compares.
func TestTableIsThatOfTheSimulator(t *testing.T) {
	if !long.Enabled() && !*rewrite {
		t.Skip(long.Reason)
	}
	want, err := Table()
	if err != nil {
		t.Fatal(err)
	}
	if *rewrite {
		if err := os.WriteFile(tableFile, want, 0o666); err != nil {
			t.Fatal(err)
		}
		return
	}
	if got, err := os.ReadFile(tableFile); err != nil || !bytes.Equal(got, want) {
		t.Errorf("%s is another (%v): run go test ./internal/net/hostsim -run TestTable -rewrite", tableFile, err)
	}
}

// The chosen algorithm is about as fast as the fastest one, also on networks that are not in the
// table.
func TestChoiceIsNearTheFastest(t *testing.T) {
	for _, inRankOrder := range []bool{true, false} {
		for _, net := range nets {
			worst, sum, count := 0.0, 0.0, 0.0
			for _, hosts := range []int{2, 3, 4, 6, 8, 11, 16, 100, 1000, 4096} {
				for _, ranks := range []int{1, 3, 8} {
					net.Hosts, net.Ranks = hosts, ranks
					for size := 8.0; size <= 1<<30; size *= math.Sqrt2 {
						bytes := int64(size)
						least := math.Inf(1)
						for _, a := range hostcost.All() {
							if a.InRankOrder() || !inRankOrder {
								least = min(least, net.Seconds(a, bytes))
							}
						}
						c := hostcost.Choose(net, bytes, inRankOrder)
						if regret := c.Seconds / least; regret > 2.2 {
							t.Errorf("%d x %d, %d B: %v takes %.2f times the least", hosts, ranks, bytes, c.Algorithm, regret)
						}
						worst = max(worst, c.Seconds/least)
						sum, count = sum+c.Seconds/least, count+1
					}
				}
			}
			t.Logf("rank order %v, %+v: mean %.3f, worst %.2f", inRankOrder, net, sum/count, worst)
			if mean := sum / count; mean > 1.15 {
				t.Errorf("rank order %v, %+v: the choice takes %.2f times the least on average", inRankOrder, net, mean)
			}
		}
	}
}
