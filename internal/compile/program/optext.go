package program

import (
	"fmt"
	"strings"
)

// String returns "map (128, 512): add, maximum". A Map without arithmetic is a copy or a fill.
func (o *Map) String() string { return "map " + shapeString(o.Space) + ": " + codeString(o.Code) }

// String returns "sum (128, 512) over 0: mul".
func (o *Reduce) String() string {
	var axes []int
	for i, r := range o.Reduced {
		if r {
			axes = append(axes, i)
		}
	}
	s := o.Red.String() + " " + shapeString(o.Space) + " over " + joined(axes, ", ")
	if code := codeString(o.Code); code != "copy" {
		s += ": " + code
	}
	return s
}

// codeString lists the operations of code in order, without loads and constants.
func codeString(code []Instr) string {
	var b strings.Builder
	loads := false
	for i := 0; i < len(code); {
		op, n := code[i].Op, 1
		for i+n < len(code) && code[i+n].Op == op {
			n++
		}
		i += n
		if op == Load || op == Const {
			loads = loads || op == Load
			continue
		}
		comma(&b, b.Len())
		b.WriteString(op.String())
		if n > 1 {
			fmt.Fprintf(&b, " x%d", n)
		}
	}
	switch {
	case b.Len() > 0:
		return b.String()
	case loads:
		return "copy"
	}
	return "fill"
}

// String returns "matmul 128x784x512": M, K, N.
func (o *MatMul) String() string {
	s := fmt.Sprintf("matmul %dx%dx%d", o.M, o.K, o.N)
	if o.Batch != 1 {
		s += fmt.Sprintf(" batch %d", o.Batch)
	}
	if o.Alpha != 1 {
		s += fmt.Sprintf(" times %g", o.Alpha)
	}
	if o.Beta != 0 {
		s += " added"
	}
	return s
}

// String returns "(64, 3, 28, 28) window 5x5 to 24x24", with settings other than the defaults
// before "to".
func (w Window) String() string {
	s := fmt.Sprintf("(%d, %d, %d, %d) window %dx%d", w.N, w.C, w.H, w.W, w.R, w.S)
	if w.StrideH != 1 || w.StrideW != 1 {
		s += fmt.Sprintf(" stride %dx%d", w.StrideH, w.StrideW)
	}
	if w.PadH != 0 || w.PadW != 0 {
		s += fmt.Sprintf(" pad %dx%d", w.PadH, w.PadW)
	}
	if w.DilationH != 1 || w.DilationW != 1 {
		s += fmt.Sprintf(" dilation %dx%d", w.DilationH, w.DilationW)
	}
	return s + fmt.Sprintf(" to %dx%d", w.OutH, w.OutW)
}

// String returns the name of the operation and its window.
func (o *Conv) String() string { return fmt.Sprintf("conv %v of %d", o.Window, o.K) }

// String returns the name of the operation and its window.
func (o *ConvGradInput) String() string { return fmt.Sprintf("convgradinput %v of %d", o.Window, o.K) }

// String returns the name of the operation and its window.
func (o *ConvGradFilter) String() string {
	return fmt.Sprintf("convgradfilter %v of %d", o.Window, o.K)
}

// String returns the name of the operation and its window.
func (o *Im2Col) String() string { return "im2col " + o.Window.String() }

// String returns the name of the operation and its window.
func (o *Col2Im) String() string { return "col2im " + o.Window.String() }

// String returns the name of the operation and its window.
func (o *MaxPool) String() string { return "maxpool " + o.Window.String() }

// String returns the name of the operation and its window.
func (o *MaxPoolGrad) String() string { return "maxpoolgrad " + o.Window.String() }

// String returns the name of the operation and its window.
func (o *AvgPool) String() string { return "avgpool " + o.Window.String() }

// String returns the name of the operation and its window.
func (o *AvgPoolGrad) String() string { return "avgpoolgrad " + o.Window.String() }

// String returns "softmax (128, 10, 1)", or logsoftmax.
func (o *Softmax) String() string {
	return logged(o.Log) + "softmax " + shapeString([]int{o.Outer, o.Axis, o.Inner})
}

// String returns "softmaxgrad (128, 10, 1)", or logsoftmaxgrad.
func (o *SoftmaxGrad) String() string {
	return logged(o.Log) + "softmaxgrad " + shapeString([]int{o.Outer, o.Axis, o.Inner})
}

func logged(log bool) string {
	if log {
		return "log"
	}
	return ""
}

// String returns "attention (8, 12, 512, 64) to 512".
func (o *Attention) String() string {
	return fmt.Sprintf("attention %s to %d", shapeString([]int{o.Batch, o.Heads, o.M, o.Depth}), o.N)
}

// String returns "attentiongrad (8, 12, 512, 64) to 512".
func (o *AttentionGrad) String() string {
	return fmt.Sprintf("attentiongrad %s to %d", shapeString([]int{o.Batch, o.Heads, o.M, o.Depth}), o.N)
}

// String returns "crossentropy (128, 10)".
func (o *CrossEntropy) String() string {
	return "crossentropy " + shapeString([]int{o.Rows, o.Classes})
}

// String returns "sparsecrossentropy (128, 50304)".
func (o *SparseCrossEntropy) String() string {
	return "sparsecrossentropy " + shapeString([]int{o.Rows, o.Classes})
}

// String returns "gather 32 of (1, 1000, 64)".
func (o *Gather) String() string {
	return fmt.Sprintf("gather %d of %s", o.Count, shapeString([]int{o.Outer, o.Axis, o.Inner}))
}

// String returns "gathergrad 32 of (1, 1000, 64)".
func (o *GatherGrad) String() string {
	return fmt.Sprintf("gathergrad %d of %s", o.Count, shapeString([]int{o.Outer, o.Axis, o.Inner}))
}

// String returns "batchnorm (64, 8, 784) training".
func (o *BatchNorm) String() string {
	return "batchnorm " + shapeString([]int{o.N, o.C, o.Spatial}) + trained(o.Training)
}

// String returns "batchnormgrad (64, 8, 784) training".
func (o *BatchNormGrad) String() string {
	return "batchnormgrad " + shapeString([]int{o.N, o.C, o.Spatial}) + trained(o.Training)
}

func trained(training bool) string {
	if training {
		return " training"
	}
	return ""
}

// String returns "allreduce sum group 0" or "allgather fetch group 0", with Part, Whole, Fetch,
// Early and Root if they are set.
func (o *Collective) String() string {
	s := o.Kind.String()
	if o.Kind.Reduces() {
		s += " " + o.Red.String()
	}
	if o.Part > 0 {
		s += fmt.Sprintf(" part %d", o.Part)
	}
	if o.Whole > 0 {
		s += fmt.Sprintf(" of %d", o.Whole)
	}
	if o.Fetch {
		s += " fetch"
	}
	if o.Early {
		s += " early"
	}
	if o.Kind.Rooted() {
		s += fmt.Sprintf(" root %d", o.Root)
	}
	return fmt.Sprintf("%s group %d", s, o.Group)
}

// String returns "call loss".
func (o *Call) String() string { return "call " + o.Label }
