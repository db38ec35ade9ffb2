package tensor_test

import (
	"fmt"
	"log"

	"github.com/symgrad/symgrad/tensor"
)

func ExampleOf() {
	b := tensor.Of([]float32{1, 2, 3, 4})
	half, err := b.Slice(2, 4)
	if err != nil {
		log.Fatal(err)
	}
	x, err := tensor.Data[float32](half)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(b, half, x)
	// Output: f32[4] on host f32[2] on host [3 4]
}

func ExampleView() {
	heap := []float64{1, 2, 3, 4} // any memory
	m, err := tensor.View(tensor.Of(heap), 2, 2)
	if err != nil {
		log.Fatal(err)
	}
	if err := m.SetAt(9.0, 1, 0); err != nil {
		log.Fatal(err)
	}
	fmt.Println(heap)
	// Output: [1 2 9 4]
}

func ExampleToBFloat16() {
	fmt.Println(tensor.ToBFloat16(1.0 / 3).Float32())
	fmt.Println(tensor.ToFloat16(1.0 / 3).Float32())
	// Output:
	// 0.33398438
	// 0.33325195
}

func ExampleParseDType() {
	dt, err := tensor.ParseDType("bf16")
	fmt.Println(dt, dt.Size(), err)
	_, err = tensor.ParseDType("float")
	fmt.Println(err)
	// Output:
	// bf16 2 <nil>
	// unknown dtype "float" (one of f16 bf16 f32 f64 i8 i16 i32 i64 u8 u16 u32 u64)
}
