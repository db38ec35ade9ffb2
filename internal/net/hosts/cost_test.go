package hosts

import (
	"testing"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/internal/net/hostcost"
	"github.com/symgrad/symgrad/tensor"
)

// The predictions of package hostcost are for the sizes of this package.
func TestHostCostKnowsTheSizes(t *testing.T) {
	cfg := Config{}.withDefaults()
	for _, n := range []int{2, 3, 100, 1024, 20000} {
		if got, want := hostcost.SlotBytes(n), slotBytes(n, cfg.SlotBytes); got != want {
			t.Errorf("places of %d B among %d ranks, want %d", got, n, want)
		}
	}
	tr := &Transport{p: &process{cfg: cfg}}
	for _, bytes := range []int{8, 32 << 10, 64 << 10, 1 << 20, 4 << 20, 64 << 20} {
		want := 0
		if bytes >= cfg.ChainBytes {
			want = tr.chunkBytes(bytes)
		}
		if got := hostcost.ChainChunk(int64(bytes)); got != int64(want) {
			t.Errorf("%d B in chunks of %d, want %d", bytes, got, want)
		}
	}
	most := int64(mostShort)
	if hostcost.PairChunk(most) != 0 || hostcost.PairChunk(most+1) != longChunk {
		t.Errorf("pairs in chunks of %d and %d B", hostcost.PairChunk(most), hostcost.PairChunk(most+1))
	}
	for _, net := range []hostcost.Net{{Hosts: 3, Ranks: 1}, {Hosts: 2, Ranks: 2}, {Hosts: 4, Ranks: 4}} {
		ranks, of := []int{}, []int{}
		for r := range net.World() {
			ranks, of = append(ranks, r), append(of, r/net.Ranks)
		}
		tr := &Transport{p: &process{cfg: cfg}, ranks: ranks, l: newLayout(ranks, of, 0)}
		for bytes := 8; bytes <= 64<<20; bytes *= 2 {
			src, err := view(make([]byte, bytes), bytes/4, tensor.F32)
			if err != nil {
				t.Fatal(err)
			}
			if want := tr.inParts(&dist.Op{Kind: dist.KindAllReduce, Src: src}); bytes >= 4*len(ranks) && net.TakesParts(int64(bytes)) != want {
				t.Errorf("%d x %d, %d B: in parts %v, want %v", net.Hosts, net.Ranks, bytes, !want, want)
			}
		}
	}
}
