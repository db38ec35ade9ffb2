package hostexec

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/internal/compile/program"
	"github.com/symgrad/symgrad/tensor"
)

// Every operation has a valid example, and its result on the host is the oracle's. The host has no
// code for the two operations that only GPUs get.
func TestExampleOfEveryOperationEqualsTheOracle(t *testing.T) {
	env := program.Env{
		Groups: []*dist.Group{worldsOf(t, 1)[0].Group},
		Calls:  []func(in, out []tensor.Buffer) error{func(in, out []tensor.Buffer) error { copy(out[0].Raw(), in[0].Raw()); return nil }},
	}
	for _, e := range program.Table() {
		t.Run(fmt.Sprintf("%T", e.Op)[len("*program."):], func(t *testing.T) {
			p := e.Program()
			if err := program.Validate(p); err != nil {
				t.Fatal(err)
			}
			switch e.Op.(type) {
			case *program.Attention, *program.AttentionGrad:
				t.Skip("it has only kernels: Optimize makes it where Program.Narrow is set")
			}
			r := rand.New(rand.NewPCG(1, 2))
			memory := contents(p, normal(r))
			for i, v := range p.Values {
				if !v.DType.IsFloat() {
					numbers(v.DType, memory[program.ID(i)], func() float64 { return float64(r.IntN(3)) }) // also indices
				}
			}
			agreeIn(t, t, p, env, memory, 1e-5)
		})
	}
}
