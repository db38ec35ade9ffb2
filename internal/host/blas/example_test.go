package blas_test

import (
	"fmt"

	gonumblas "gonum.org/v1/gonum/blas"

	"github.com/symgrad/symgrad/internal/host/blas"
)

// Whatever Open finds, it multiplies; gorgonia.Use(impl) would make Gorgonia do so with it.
func ExampleOpen() {
	impl, err := blas.Open(blas.Config{Threads: 1})
	if err != nil {
		fmt.Println(err)
		return
	}
	a := []float32{
		1, 2,
		3, 4,
	}
	c := make([]float32, 4)
	impl.Sgemm(gonumblas.NoTrans, gonumblas.NoTrans, 2, 2, 2, 1, a, 2, a, 2, 0, c, 2)
	fmt.Println(c)
	// Output: [7 10 15 22]
}

// A path that is set is used or refused, never passed over.
func ExampleOpen_path() {
	_, err := blas.Open(blas.Config{Path: "/opt/none/libopenblas.so.0"})
	fmt.Println(err != nil)
	// Output: true
}
