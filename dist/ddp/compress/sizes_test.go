package compress

import (
	"fmt"
	"reflect"
	"testing"

	"github.com/symgrad/symgrad/tensor"
)

// unsized hides the sizes method of a hook, so that a Codec is made.
type unsized struct{ Hook }

func TestSizesAreThoseOfCodecs(t *testing.T) {
	for _, hook := range []Hook{
		Cast{DType: tensor.BF16},
		Cast{DType: tensor.F16, ErrorFeedback: true},
		PowerSGD{},
		PowerSGD{Rank: 2},
		PowerSGD{Rank: 40},
		PowerSGD{Rank: 1, NoErrorFeedback: true},
		PowerSGD{NoWarmStart: true},
	} {
		for _, dt := range []tensor.DType{tensor.F32, tensor.F64} {
			for _, shapes := range [][][]int{{{30, 40}, {7}, {}, {3, 200}}, {{5}}, {{64, 3, 5, 5}, {64, 64}}} {
				b := Bucket{DType: dt, Ranks: 2}
				for i, s := range shapes {
					p := Param{Name: fmt.Sprint("p", i), Shape: s, Offset: b.Elements}
					b.Elements += p.Len() + 3
					b.Params = append(b.Params, p)
				}
				want, kept, err := Sizes(unsized{hook}, b)
				if err != nil {
					t.Fatal(err)
				}
				got, own, err := Sizes(hook, b)
				if err != nil || !reflect.DeepEqual(got, want) || own != kept {
					t.Errorf("%v %v %v: %v and %d B (%v), the codec has %v and %d B", hook, dt, shapes, got, own, err, want, kept)
				}
			}
		}
	}
}
