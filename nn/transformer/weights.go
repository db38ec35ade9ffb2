package transformer

import (
	"fmt"
	"slices"

	gtensor "gorgonia.org/tensor"

	"github.com/symgrad/symgrad/checkpoint"
	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/tensor"
)

// Weights are the values of all parameters of a model.
type Weights struct {
	Config Config
	Values []*gtensor.Dense // float32, in the order of Config.Params
}

// Initial returns initial weights, which depend on c and the seed only.
//
// Errors: those of Validate.
func Initial(c Config, seed int64) (*Weights, error) {
	all, err := c.Params()
	if err != nil {
		return nil, err
	}
	w := &Weights{Config: c.filled(), Values: make([]*gtensor.Dense, len(all))}
	for i, p := range all {
		w.Values[i] = dense(p)
		p.initial(w.Values[i].Float32s(), seed, i)
	}
	return w, nil
}

// dense returns a tensor of zeros for p.
func dense(p Param) *gtensor.Dense {
	return gtensor.New(gtensor.WithShape(p.Shape...), gtensor.WithBacking(make([]float32, p.len())))
}

// check compares the values with the parameters of the configuration.
//
// Returns: the parameters.
func (w *Weights) check() ([]Param, error) {
	all, err := w.Config.Params()
	if err != nil {
		return nil, err
	}
	return all, checkValues(all, w.Values)
}

func checkValues(all []Param, values []*gtensor.Dense) error {
	if len(values) != len(all) {
		return fmt.Errorf("transformer: %w: %d weights, and the configuration has %d parameters", dist.ErrInvalid, len(values), len(all))
	}
	for i, p := range all {
		v := values[i]
		if v == nil || v.Dtype() != gtensor.Float32 || !slices.Equal(v.Shape(), p.Shape) || !tensor.PackedDense(v) {
			return fmt.Errorf("transformer: %w: weight %d is %s, and parameter %s is float32 %v, in rows", dist.ErrInvalid, i, form(v), p.Name, p.Shape)
		}
	}
	return nil
}

// form returns dtype and shape for an error.
func form(v *gtensor.Dense) string {
	if v == nil {
		return "nil"
	}
	return fmt.Sprintf("%v %v", v.Dtype(), []int(v.Shape()))
}

// ConfigKey is the key under which a checkpoint of a training has the config.json of its model, in
// Manifest.Extra of package checkpoint. Package train stores it from State.Extra, or from a Problem
// that is Annotated.
const ConfigKey = "huggingface_config"

// ConfigOf returns the configuration that a checkpoint has under ConfigKey.
//
// Errors: dist.ErrInvalid for a checkpoint without one; those of ParseConfig.
func ConfigOf(c *checkpoint.Checkpoint) (Config, error) {
	text, there := c.Manifest().Extra[ConfigKey]
	if !there {
		return Config{}, fmt.Errorf("transformer: %s: %w: it has no configuration of a transformer (%s)", c.Path(), dist.ErrInvalid, ConfigKey)
	}
	cfg, err := ParseConfig(text)
	if err != nil {
		return Config{}, fmt.Errorf("%s: %s: %w", c.Path(), ConfigKey, err)
	}
	return cfg, nil
}

// FromCheckpoint returns the weights in a checkpoint of a model of this package.
//
// Errors: dist.ErrInvalid for a parameter that is missing or has another shape or dtype, naming the
// checkpoint, the parameter and both shapes; those of c.
func FromCheckpoint(c *checkpoint.Checkpoint, cfg Config) (*Weights, error) {
	all, err := cfg.Params()
	if err != nil {
		return nil, err
	}
	for _, p := range all {
		t, there := c.Lookup(p.Name)
		switch {
		case !there:
			return nil, fmt.Errorf("transformer: %s: %w: it has no parameter %s: it belongs to another model or configuration", c.Path(), dist.ErrInvalid, p.Name)
		case t.DType != tensor.F32 || !slices.Equal(t.Shape, p.Shape):
			return nil, fmt.Errorf("transformer: %s: %w: parameter %s is %v%v, and the configuration needs f32%v: use the config.json of this model",
				c.Path(), dist.ErrInvalid, p.Name, t.DType, t.Shape, p.Shape)
		}
	}
	w := &Weights{Config: cfg.filled(), Values: make([]*gtensor.Dense, len(all))}
	for i, p := range all {
		w.Values[i] = dense(p)
		if err := c.Read(p.Name, 0, tensor.Of(w.Values[i].Float32s())); err != nil {
			return nil, fmt.Errorf("transformer: %w", err)
		}
	}
	return w, nil
}
