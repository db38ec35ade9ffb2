package nn_test

import (
	"fmt"
	"log"
	"math/rand/v2"

	G "gorgonia.org/gorgonia"
	gtensor "gorgonia.org/tensor"

	"github.com/symgrad/symgrad/machine"
	"github.com/symgrad/symgrad/nn"
)

// Two rows of equal logits have the loss log 4. The second does not count.
func ExampleSparseCrossEntropy() {
	g := G.NewGraph()
	logits := G.NewMatrix(g, gtensor.Float32, G.WithName("logits"), G.WithShape(2, 4), G.WithInit(G.Zeroes()))
	targets := G.NewVector(g, gtensor.Int, G.WithName("targets"), G.WithShape(2),
		G.WithValue(gtensor.New(gtensor.WithBacking([]int{3, -100}))))
	cost, err := nn.SparseCrossEntropy(logits, targets, nn.CrossEntropyConfig{})
	if err != nil {
		log.Fatal(err)
	}
	if _, err := G.Grad(cost, logits); err != nil {
		log.Fatal(err)
	}
	vm, err := machine.New(g, machine.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer vm.Close()
	if err := vm.RunAll(); err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%.4f\n%.2f\n", cost.Value(), logits.Deriv().Value().Data())
	// Output:
	// 1.3863
	// [0.25 0.25 0.25 -0.75 0.00 0.00 0.00 0.00]
}

// A block of a transformer learns to count: the next token is the last one plus 1.
func Example() {
	const batch, context, width, vocabulary = 4, 8, 16, 10
	g, r := G.NewGraph(), rand.New(rand.NewPCG(1, 2))
	var params G.Nodes
	param := func(name string, deviation float64, shape ...int) *G.Node {
		v := gtensor.New(gtensor.Of(gtensor.Float32), gtensor.WithShape(shape...))
		for i := range v.Float32s() {
			v.Float32s()[i] = float32(deviation * r.NormFloat64())
		}
		n := G.NewTensor(g, gtensor.Float32, len(shape), G.WithName(name), G.WithShape(shape...), G.WithValue(v))
		params = append(params, n)
		return n
	}
	ints := func(name string, first int) *G.Node {
		v := gtensor.New(gtensor.Of(gtensor.Int), gtensor.WithShape(batch, context))
		for i := range v.Ints() {
			v.Ints()[i] = (i/context*3 + i%context + first) % vocabulary
		}
		return G.NewMatrix(g, gtensor.Int, G.WithName(name), G.WithShape(batch, context), G.WithValue(v))
	}
	must := func(n *G.Node, err error) *G.Node {
		if err != nil {
			log.Fatal(err)
		}
		return n
	}
	tokens, targets := ints("tokens", 0), ints("targets", 1)
	x := must(nn.Embedding(param("embedding", 1, vocabulary, width), tokens))
	h := must(nn.RMSNorm(x, nil, 1e-6))
	project := func(name string, x *G.Node, in, out int) *G.Node {
		return must(nn.Linear(x, param(name, 0.2, in, out), nil))
	}
	turn := func(x *G.Node) *G.Node { return must(nn.RoPE(x, nn.RoPEConfig{Heads: 2})) }
	q, k, v := turn(project("q", h, width, width)), turn(project("k", h, width, width)), project("v", h, width, width)
	x = must(G.Add(x, must(nn.Attention(q, k, v, nn.AttentionConfig{Heads: 2, Causal: true}))))
	h = must(nn.RMSNorm(x, nil, 1e-6))
	up := must(nn.SwiGLU(project("gate", h, width, 2*width), project("up", h, width, 2*width)))
	x = must(G.Add(x, project("down", up, 2*width, width)))
	cost := must(nn.LinearCrossEntropy(x, param("head", 0.2, width, vocabulary), targets, nn.CrossEntropyConfig{}))
	if _, err := G.Grad(cost, params...); err != nil {
		log.Fatal(err)
	}
	vm, err := machine.New(g, machine.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer vm.Close()
	solver := G.NewAdamSolver(G.WithLearnRate(0.01))
	for range 100 {
		if err := vm.RunAll(); err != nil {
			log.Fatal(err)
		}
		if err := solver.Step(G.NodesToValueGrads(params)); err != nil {
			log.Fatal(err)
		}
	}
	fmt.Println("the loss is below 0.05:", cost.Value().Data().(float32) < 0.05)
	// Output: the loss is below 0.05: true
}
