package symmetric_test

import (
	"errors"
	"fmt"
	"log"

	"github.com/symgrad/symgrad/symmetric"
)

func ExampleArena() {
	a, err := symmetric.NewArena(2048)
	if err != nil {
		log.Fatal(err)
	}
	weights, _ := a.Alloc(1000)
	grads, _ := a.Alloc(1000)
	_, err = a.Alloc(1)
	fmt.Println(weights, grads, errors.Is(err, symmetric.ErrNoSpace))
	fmt.Printf("%+v\n", a.Stats())
	// Output:
	// 0 1024 true
	// {Capacity:2048 Used:2048 Peak:2048 Regions:2}
}
