package ddp_test

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"

	gtensor "gorgonia.org/tensor"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/dist/ddp"
	"github.com/symgrad/symgrad/dist/ddp/compress"
	"github.com/symgrad/symgrad/tensor"
)

// TestPlanForIsThatOfAttach compares plans and bytes with the plan and allocations of Attach, on
// ranks.
func TestPlanForIsThatOfAttach(t *testing.T) {
	for _, dt := range []gtensor.Dtype{gtensor.Float32, gtensor.Float64} {
		for _, cfg := range []ddp.Config{
			{},
			{BucketMB: 1.0 / 1024, FirstBucketMB: 1.0 / 1024},
			{BucketMB: 1.0 / 1024, Stage: 1},
			{BucketMB: 2.0 / 1024, Stage: 2},
			{Stage: 3},
			{WireDType: tensor.BF16, ErrorFeedback: true},
			{Hook: compress.PowerSGD{Rank: 2}},
			{VirtualRanks: 6},
		} {
			for _, n := range []int{1, 2, 3} {
				t.Run(fmt.Sprintf("%v/%+v/%d", dt, cfg, n), func(t *testing.T) {
					onRanks(t, n, func(w *dist.World) error { return samePlan(w, dt, cfg) })
				})
			}
		}
	}
}

func samePlan(w *dist.World, dt gtensor.Dtype, cfg ddp.Config) error {
	m := cnn.make(dt, 4, 1)
	d, err := ddp.Attach(w, m.cost, m.params, cfg)
	if err != nil {
		return err
	}
	want := d.Plan()
	got, err := ddp.PlanFor(want.Params, want.GradientOrder(), cfg, w.Size(), false)
	if err != nil {
		return err
	}
	if want.Memory = got.Memory; !reflect.DeepEqual(got, want) {
		return fmt.Errorf("%w: %+v, want %+v", errDiffers, got, want)
	}
	room, memory := got.Room(false), d.Memory()
	slack := int64(512 * (2 + 2*len(got.Buckets))) // regions begin at multiples of 512
	for what, pair := range map[string][2]int64{"gradients": {room.Grads, memory.Grads}, "weights": {room.Params, memory.Params}} {
		if what == "weights" && cfg.Stage == 0 {
			pair[1] = 0 // they are where the model has them
		}
		if pair[0] < pair[1] || pair[0] > pair[1]+slack {
			return fmt.Errorf("%w: %d B of %s, and %d B are allocated", errDiffers, pair[0], what, pair[1])
		}
	}
	if wire, err := got.Wire(cfg, w.Size(), false); err != nil {
		return err
	} else if sent := wireSum(got, wire); cfg.VirtualRanks == 0 && sent != d.WireBytes() {
		return fmt.Errorf("%w: %d B of messages, want %d", errDiffers, sent, d.WireBytes())
	}
	return d.Close()
}

var errDiffers = errors.New("the plan differs")

// wireSum is the bytes that the buckets of a plan travel as.
func wireSum(p ddp.Plan, w ddp.Wire) int64 {
	sum := int64(0)
	for i, b := range p.Buckets {
		if w.Messages == nil {
			sum += b.Bytes()
			continue
		}
		for _, m := range w.Messages[i] {
			sum += int64(m.Elements) * int64(m.DType.Size())
		}
	}
	return sum
}

func TestPlanForOnGPUsBeginsGradientsWhereKernelsLikeIt(t *testing.T) {
	params := []ddp.PlanParam{{Name: "a", Shape: []int{3}, DType: tensor.F32}, {Name: "b", Shape: []int{5}, DType: tensor.F32}}
	p, err := ddp.PlanFor(params, []int{1, 0}, ddp.Config{}, 2, true)
	if err != nil {
		t.Fatal(err)
	}
	if p.Params[1].Offset != 0 || p.Params[0].Offset != 64 || p.Buckets[0].Elements != 67 {
		t.Errorf("%+v", p)
	}
	if r := p.Room(true); r.Params != 1024 || r.Grads != 512 || r.Staging != 0 {
		t.Errorf("%+v", r)
	}
}

func TestPlanForRefuses(t *testing.T) {
	params := []ddp.PlanParam{{Name: "a", Shape: []int{3}, DType: tensor.F32}}
	for name, call := range map[string]func() (ddp.Plan, error){
		"no ranks":           func() (ddp.Plan, error) { return ddp.PlanFor(params, []int{0}, ddp.Config{}, 0, false) },
		"no order":           func() (ddp.Plan, error) { return ddp.PlanFor(params, nil, ddp.Config{}, 2, false) },
		"an order of others": func() (ddp.Plan, error) { return ddp.PlanFor(params, []int{1}, ddp.Config{}, 2, false) },
		"a stage":            func() (ddp.Plan, error) { return ddp.PlanFor(params, []int{0}, ddp.Config{Stage: 4}, 2, false) },
		"virtual ranks":      func() (ddp.Plan, error) { return ddp.PlanFor(params, []int{0}, ddp.Config{VirtualRanks: 3}, 2, false) },
		"no dtype": func() (ddp.Plan, error) {
			return ddp.PlanFor([]ddp.PlanParam{{Name: "a", Shape: []int{3}}}, []int{0}, ddp.Config{}, 2, false)
		},
		"half a parameter": func() (ddp.Plan, error) {
			return ddp.PlanFor([]ddp.PlanParam{{Name: "a", Shape: []int{3}, DType: tensor.BF16}}, []int{0}, ddp.Config{}, 2, false)
		},
		"a negative dimension": func() (ddp.Plan, error) {
			return ddp.PlanFor([]ddp.PlanParam{{Name: "a", Shape: []int{-3}, DType: tensor.F32}}, []int{0}, ddp.Config{}, 2, false)
		},
		"no bound of buckets": func() (ddp.Plan, error) { return ddp.PlanFor(params, []int{0}, ddp.Config{BucketMB: -1}, 2, false) },
	} {
		if _, err := call(); !errors.Is(err, dist.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// The error of a wrong order shows the order that was given.
func TestPlanForShowsTheWrongOrder(t *testing.T) {
	params := []ddp.PlanParam{{Name: "a", DType: tensor.F32}, {Name: "b", DType: tensor.F32}}
	for _, order := range [][]int{{0}, {1, 1}, {0, 5}, {2, 1, 0}} {
		_, err := ddp.PlanFor(params, order, ddp.Config{}, 2, false)
		if !errors.Is(err, dist.ErrInvalid) || !strings.Contains(err.Error(), fmt.Sprint(order)) {
			t.Errorf("order %v: %v, want ErrInvalid that shows it", order, err)
		}
	}
}
