package lower

import (
	"testing"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/dist/ddp"
	"github.com/symgrad/symgrad/internal/compile/program"
	"github.com/symgrad/symgrad/tensor"
)

// TestGradientsAreNotBornInABucketThatIsStillNeeded has a gradient that is computed before or after
// the sum of the earlier bucket in the same memory. It may be computed in its slot only after that
// sum.
func TestGradientsAreNotBornInABucketThatIsStillNeeded(t *testing.T) {
	for _, c := range []struct {
		name         string
		stage        int
		before, born bool
	}{
		{"computed behind the sum", 2, false, true},
		{"computed before the sum", 2, true, false},
		{"computed before the sum, in a place of its own", 1, true, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := &exchanging{work: newWork("slots"), Exchange: &Exchange{plan: ddp.Plan{Stage: c.stage}}}
			value := func(place program.Place, role program.Role) program.ID {
				return l.Program.Add(program.Value{DType: tensor.F32, Shape: []int{4}, Place: place, Role: role})
			}
			in, grad := value(program.Outside, program.Input), value(program.Arena, program.Temp)
			bucket, shard := value(program.Outside, program.Gradient), value(program.Outside, program.Gradient)
			space := []int{4}
			copying := func(from, to program.ID) program.Step {
				return program.Step{
					Op: &program.Map{Space: space, Code: []program.Instr{{Op: program.Load}}, Stores: []int{0}},
					In: []program.View{l.Program.Whole(from)}, Out: []program.View{l.Program.Whole(to)},
				}
			}
			sum := program.Step{
				Op: &program.Collective{Kind: dist.KindReduceScatter, Red: dist.Sum, Part: 4, Whole: 4},
				In: []program.View{l.Program.Whole(bucket)}, Out: []program.View{l.Program.Whole(shard)},
			}
			if c.before {
				l.Program.Steps = []program.Step{copying(in, grad), sum, copying(grad, bucket)}
			} else {
				l.Program.Steps = []program.Step{sum, copying(in, grad), copying(grad, bucket)}
			}
			l.copies = []slotCopy{{step: 2, bucket: bucket}}
			l.bornInSlots()
			if born := len(l.Program.Steps) == 2; born != c.born {
				t.Errorf("born in its slot: %v, want %v; %d steps:\n%v", born, c.born, len(l.Program.Steps), l.Program)
			}
		})
	}
}
