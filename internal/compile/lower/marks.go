package lower

import gtensor "gorgonia.org/tensor"

// Mark is a setting of an op that a program depends on and that the user may change: a training
// flag or a slice. It is checked before each run.
type Mark struct {
	flag  *bool
	was   bool
	slice interface{ IsSlice() gtensor.Slice }
	part  [3]int
}

func markFlag(flag *bool) Mark {
	if flag == nil {
		return Mark{}
	}
	return Mark{flag: flag, was: *flag}
}

func markSlice(op interface{ IsSlice() gtensor.Slice }) Mark {
	return Mark{slice: op, part: partOf(op.IsSlice())}
}

func partOf(s gtensor.Slice) [3]int {
	if s == nil {
		return [3]int{}
	}
	return [3]int{s.Start(), s.End(), s.Step()}
}

// Changed reports whether the setting differs from that of the program.
func (m *Mark) Changed() bool {
	return m.flag != nil && *m.flag != m.was || m.slice != nil && partOf(m.slice.IsSlice()) != m.part
}
