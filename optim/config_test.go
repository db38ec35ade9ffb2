package optim

import (
	"errors"
	"math"
	"reflect"
	"strings"
	"testing"
)

func TestConfigMistakesAreNamed(t *testing.T) {
	nan, inf := math.NaN(), math.Inf(1)
	for _, c := range []struct {
		config Config
		says   string
	}{
		{Config{}, `name "": use sgd, momentum, nesterov, adam, adamw, lamb or lion`},
		{Config{Name: "adma"}, `name "adma": use sgd, momentum, nesterov, adam, adamw, lamb or lion`},
		{Config{Name: "Adam"}, `name "Adam"`},
		{Config{Name: SGD, LearningRate: -1}, "learning rate -1 is out of range"},
		{Config{Name: SGD, LearningRate: nan}, "learning rate NaN"},
		{Config{Name: SGD, LearningRate: inf}, "learning rate +Inf"},
		{Config{Name: Momentum, Momentum: 1}, "momentum 1 is out of range"},
		{Config{Name: Momentum, Momentum: -0.5}, "momentum -0.5"},
		{Config{Name: Momentum, Dampening: 1.5}, "dampening 1.5"},
		{Config{Name: Momentum, Nesterov: true, Dampening: 0.1}, "nesterov excludes dampening"},
		{Config{Name: Adam, Beta1: 1}, "beta1 1 is out of range"},
		{Config{Name: Adam, Beta2: 2}, "beta2 2 is out of range"},
		{Config{Name: Adam, Beta2: nan}, "beta2 NaN"},
		{Config{Name: Adam, Epsilon: -1e-8}, "epsilon -1e-08"},
		{Config{Name: SGD, WeightDecay: -0.1}, "weight decay -0.1"},
		{Config{Name: SGD, WeightDecay: inf}, "weight decay +Inf"},
		{Config{Name: SGD, ClipNorm: -1}, "clip norm -1"},
		{Config{Name: SGD, ClipNorm: nan}, "clip norm NaN"},
		{Config{Name: SGD, Workers: -1}, "workers -1"},
		{Config{Name: SGD, Workers: 1 << 60}, "a number up to 65536"},
		{Config{Name: SGD, ClipValue: -1}, "clip value -1 is out of range"},
		{Config{Name: SGD, ClipValue: nan}, "clip value NaN"},
		{Config{Name: SGD, ClipValue: inf}, "clip value +Inf"},
		{Config{Name: SGD, EMADecay: 1}, "average's decay 1 is out of range"},
		{Config{Name: SGD, EMADecay: -0.1}, "average's decay -0.1"},
		{Config{Name: SGD, EMADecay: nan}, "average's decay NaN"},
		{Config{Name: Nesterov, Momentum: 1}, "momentum 1 is out of range"},
		{Config{Name: LAMB, WeightDecay: 0.1, Beta1: 1}, "beta1 1 is out of range"},
		{Config{Name: Lion, Beta2: -1}, "beta2 -1"},

		{Config{Name: Nesterov, Dampening: 0.1}, "dampening has no effect: leave it out or use momentum"},
		{Config{Name: LAMB, WeightDecay: 0.1, AMSGrad: true}, "amsgrad has no effect"},
		{Config{Name: LAMB, WeightDecay: 0.1, Momentum: 0.1}, "momentum has no effect"},
		{Config{Name: Lion, Epsilon: 1e-8}, "epsilon has no effect: leave it out or use adam, adamw or lamb"},
		{Config{Name: Lion, Nesterov: true}, "nesterov has no effect"},

		{Config{Name: SGD, Groups: []Group{{Names: []string{"a[b"}, RateScale: 2}}}, `group 0: pattern "a[b": syntax error in pattern`},
		{Config{Name: SGD, Groups: []Group{{MaxDims: -1, RateScale: 2}}}, "group 0: max dims -1"},
		{Config{Name: SGD, Groups: []Group{{WeightDecay: -1}}}, "group 0: weight decay -1"},
		{Config{Name: SGD, Groups: []Group{{WeightDecay: inf}}}, "group 0: weight decay +Inf"},
		{Config{Name: SGD, Groups: []Group{{RateScale: -1}}}, "group 0: rate scale -1"},
		{Config{Name: SGD, Groups: []Group{{RateScale: nan}}}, "group 0: rate scale NaN"},
		{Config{Name: SGD, WeightDecay: 0.1, Groups: []Group{{NoWeightDecay: true, WeightDecay: 0.2}}}, "excludes weight decay, which is 0.2"},
		{Config{Name: SGD, Groups: []Group{{MaxDims: 1, RateScale: 1}}}, "has no effect"},
		{Config{Name: SGD, WeightDecay: 0.1, Groups: []Group{{WeightDecay: 0.1}}}, "has no effect"},
		{Config{Name: SGD, Groups: []Group{{RateScale: 2}, {MaxDims: 1, RateScale: 3}}}, "group 1 has no effect: group 0 before it matches all"},

		{Config{Name: SGD, Momentum: 0.9}, "momentum has no effect: leave it out or use momentum or nesterov"},
		{Config{Name: SGD, Dampening: 0.9}, "dampening has no effect"},
		{Config{Name: SGD, Nesterov: true}, "nesterov has no effect"},
		{Config{Name: SGD, Beta1: 0.9}, "beta1 has no effect: leave it out or use adam, adamw, lamb or lion"},
		{Config{Name: Momentum, Beta2: 0.9}, "beta2 has no effect"},
		{Config{Name: Momentum, Epsilon: 1e-8}, "epsilon has no effect"},
		{Config{Name: SGD, AMSGrad: true}, "amsgrad has no effect"},
		{Config{Name: Adam, Momentum: 0.9}, "momentum has no effect"},
		{Config{Name: AdamW, WeightDecay: 0.1, Nesterov: true}, "nesterov has no effect"},

		{Config{Name: SGD, Schedule: Schedule{Name: "linear"}}, `schedule "linear": use constant, cosine or step`},
		{Config{Name: SGD, Schedule: Schedule{WarmupSteps: -1}}, "warm-up of -1 steps"},
		{Config{Name: SGD, Schedule: Schedule{Steps: 5}}, "steps (5) has no effect"},
		{Config{Name: SGD, Schedule: Schedule{Name: Cosine}}, "schedule cosine: steps is 0"},
		{Config{Name: SGD, Schedule: Schedule{Name: StepDown, Steps: -2}}, "schedule step: steps is -2"},
		{Config{Name: SGD, Schedule: Schedule{Name: StepDown, Steps: 2, Gamma: 1.5}}, "gamma 1.5"},
		{Config{Name: SGD, Schedule: Schedule{Name: StepDown, Steps: 2, Gamma: nan}}, "gamma NaN"},
		{Config{Name: SGD, Schedule: Schedule{Name: Cosine, Steps: 2, Gamma: 0.5}}, "gamma has no effect"},
		{Config{Name: SGD, Schedule: Schedule{Name: StepDown, Steps: 2, MinLearningRate: 0.5}}, "minimum learning rate has no effect"},
		{Config{Name: SGD, Schedule: Schedule{Name: Cosine, Steps: 2, MinLearningRate: 0.01}}, "minimum learning rate 0.01 is not between 0 and the learning rate 0.001"},
		{Config{Name: SGD, Schedule: Schedule{Name: Cosine, Steps: 2, MinLearningRate: nan}}, "minimum learning rate NaN"},
	} {
		s, err := New(c.config)
		if !errors.Is(err, ErrConfig) || s != nil {
			t.Errorf("%+v: solver %v, error %v, want ErrConfig", c.config, s, err)
			continue
		}
		if !strings.Contains(err.Error(), c.says) {
			t.Errorf("error %q does not say %q", err, c.says)
		}
		if err2 := c.config.Validate(); err2 == nil || err2.Error() != err.Error() {
			t.Errorf("Validate says %v and New %v", err2, err)
		}
	}
}

func TestConfigPrintsWhatItMeans(t *testing.T) {
	for _, c := range []struct {
		config Config
		want   string
	}{
		{Config{Name: SGD}, "sgd learning_rate=0.001 weight_decay=0 clip_norm=0 schedule=constant(warmup=0)"},
		{
			Config{Name: Momentum, LearningRate: 0.1, Nesterov: true, Schedule: Schedule{Name: StepDown, WarmupSteps: 3, Steps: 10}},
			"momentum learning_rate=0.1 momentum=0.9 dampening=0 nesterov=true weight_decay=0 clip_norm=0 schedule=step(warmup=3,steps=10,gamma=0.1)",
		},
		{
			Config{Name: AdamW, WeightDecay: 0.01, ClipNorm: 1, Schedule: Schedule{Name: Cosine, Steps: 100, MinLearningRate: 1e-5}},
			"adamw learning_rate=0.001 beta1=0.9 beta2=0.999 epsilon=1e-08 amsgrad=false weight_decay=0.01 clip_norm=1 schedule=cosine(warmup=0,steps=100,min=1e-05)",
		},
		{
			Config{
				Name: LAMB, WeightDecay: 0.01, ClipValue: 0.5, EMADecay: 0.999, SkipNonFinite: true,
				Groups: []Group{{Names: []string{"*.bias", "b"}, MaxDims: 1, NoWeightDecay: true}, {WeightDecay: 0.1, RateScale: 2}},
			},
			"lamb learning_rate=0.001 beta1=0.9 beta2=0.999 epsilon=1e-06 weight_decay=0.01 group0=(names=*.bias|b,max_dims=1,weight_decay=0)" +
				" group1=(weight_decay=0.1,rate_scale=2) clip_norm=0 clip_value=0.5 skip_nonfinite=true ema_decay=0.999 schedule=constant(warmup=0)",
		},
		{Config{Name: Lion}, "lion learning_rate=0.001 beta1=0.9 beta2=0.99 weight_decay=0 clip_norm=0 schedule=constant(warmup=0)"},
		{Config{Name: Nesterov}, "nesterov learning_rate=0.001 momentum=0.9 weight_decay=0 clip_norm=0 schedule=constant(warmup=0)"},
	} {
		if got := c.config.String(); got != c.want {
			t.Errorf("got  %s\nwant %s", got, c.want)
		}
		if err := c.config.Validate(); err != nil {
			t.Error(err)
		}
	}
}

// TestEqualLooksAtEveryField changes one field after another.
func TestEqualLooksAtEveryField(t *testing.T) {
	for _, of := range []reflect.Type{reflect.TypeFor[Config](), reflect.TypeFor[Group](), reflect.TypeFor[Schedule]()} {
		for i := range of.NumField() {
			c := reflect.New(of).Elem()
			switch f := c.Field(i); f.Kind() {
			case reflect.String:
				f.SetString("x")
			case reflect.Float64:
				f.SetFloat(0.5)
			case reflect.Int:
				f.SetInt(3)
			case reflect.Bool:
				f.SetBool(true)
			case reflect.Slice:
				f.Set(reflect.MakeSlice(f.Type(), 1, 1))
			case reflect.Struct:
				f.Field(0).SetString("x")
			default:
				t.Fatalf("%v has a field of kind %v", of, f.Kind())
			}
			var a, b Config
			switch x := c.Interface().(type) {
			case Config:
				b = x
			case Group:
				a.Groups, b.Groups = []Group{{}}, []Group{x}
			case Schedule:
				b.Schedule = x
			}
			if a.Equal(b) || !b.Equal(b) {
				t.Errorf("%v: Equal does not look at %s", of, of.Field(i).Name)
			}
		}
	}
	if !(Config{Groups: []Group{}}).Equal(Config{}) {
		t.Error("no groups are not no groups")
	}
}

func TestZeroConfigEqualsItsDefaultsWrittenOut(t *testing.T) {
	for _, c := range []struct{ short, long Config }{
		{Config{Name: SGD}, Config{Name: SGD, LearningRate: 1e-3, Schedule: Schedule{Name: Constant}}},
		{Config{Name: Momentum}, Config{Name: Momentum, LearningRate: 1e-3, Momentum: 0.9}},
		{Config{Name: Adam}, Config{Name: Adam, LearningRate: 1e-3, Beta1: 0.9, Beta2: 0.999, Epsilon: 1e-8}},
		{Config{Name: Nesterov}, Config{Name: Nesterov, LearningRate: 1e-3, Momentum: 0.9, Nesterov: true}},
		{Config{Name: LAMB}, Config{Name: LAMB, LearningRate: 1e-3, Beta1: 0.9, Beta2: 0.999, Epsilon: 1e-6}},
		{Config{Name: Lion}, Config{Name: Lion, LearningRate: 1e-3, Beta1: 0.9, Beta2: 0.99}},
	} {
		if !c.short.withDefaults().Equal(c.long.withDefaults()) {
			t.Errorf("%v is not %v", c.short, c.long)
		}
	}
}

func TestSettersRefuseWhatWouldSpoilTheWeights(t *testing.T) {
	s := newSolver(t, Config{Name: SGD, LearningRate: 1})
	for _, v := range []float64{math.NaN(), math.Inf(1), math.Inf(-1), -1} {
		if err := s.SetLearningRate(v); !errors.Is(err, ErrConfig) {
			t.Errorf("learning rate %v: error %v", v, err)
		}
		if err := s.SetGradientScale(v); !errors.Is(err, ErrConfig) {
			t.Errorf("gradient scale %v: error %v", v, err)
		}
	}
	if err := s.SetGradientScale(0); !errors.Is(err, ErrConfig) {
		t.Errorf("gradient scale 0: error %v", err)
	}
	weight := []float64{1}
	if err := s.Step(vectors(weight, []float64{1})); err != nil || weight[0] != 0 {
		t.Errorf("a refused setting had an effect: weight %v, error %v", weight[0], err)
	}
}
