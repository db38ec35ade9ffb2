package plan

// Memory is the bytes of one rank, where it computes: on the host, or on its GPU.
type Memory struct {
	Params      int64 `json:"params"`      // weights
	Gradients   int64 `json:"gradients"`   // that last from one step to the next
	State       int64 `json:"state"`       // of the optimizer
	Activations int64 `json:"activations"` // arena, constants and scratch memory of the compiled graph
	Staging     int64 `json:"staging"`     // buffers that gradients pass through
	Wire        int64 `json:"wire"`        // their messages
	Inputs      int64 `json:"inputs"`
	Outputs     int64 `json:"outputs"`
}

// Total is the sum.
func (m Memory) Total() int64 {
	return m.Params + m.Gradients + m.State + m.Activations + m.Staging + m.Wire + m.Inputs + m.Outputs
}

// part is one of the numbers.
type part struct {
	name  string
	bytes int64
}

// parts is the numbers with their names, in the order of the table.
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
