package plan

// Memory is the bytes of one rank on its compute device, the host or a GPU.
type Memory struct {
	Params      int64 `json:"params"`      // weights
	Gradients   int64 `json:"gradients"`   // gradients that are stored from one step to the next
	State       int64 `json:"state"`       // optimizer state
	Activations int64 `json:"activations"` // arena, constants and scratch memory of the compiled graph
	Staging     int64 `json:"staging"`     // buffers that gradients pass through
	Wire        int64 `json:"wire"`        // messages of a wire dtype or hook
	Inputs      int64 `json:"inputs"`
	Outputs     int64 `json:"outputs"`
}

// Total returns the sum.
func (m Memory) Total() int64 {
	return m.Params + m.Gradients + m.State + m.Activations + m.Staging + m.Wire + m.Inputs + m.Outputs
}

// part is one number with its name.
type part struct {
	name  string
	bytes int64
}

// parts returns the numbers in the order of the table.
func (m Memory) parts() []part {
	return []part{
		{"parameters", m.Params},
		{"gradients", m.Gradients},
		{"optimizer state", m.State},
		{"activations", m.Activations},
		{"staging", m.Staging},
		{"wire buffers", m.Wire},
		{"inputs", m.Inputs},
		{"outputs", m.Outputs},
	}
}
