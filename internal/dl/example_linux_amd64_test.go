package dl_test

import (
	"errors"
	"fmt"

	"github.com/symgrad/symgrad/internal/dl"
)

func Example() {
	lib, err := dl.Open(dl.Search{Name: "libm", Sonames: []string{"libm.so.6"}})
	if err != nil {
		fmt.Println(err)
		return
	}
	var m struct {
		cos   func(float64) float64 `dl:"cos"`
		ilogb dl.Proc               `dl:"ilogb_of_the_future,optional,since=99"`
	}
	if err := lib.Bind(&m); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(m.cos(0))
	_, err = m.ilogb.Call()
	fmt.Println(errors.Is(err, dl.ErrUnsupported))
	// Output:
	// 1
	// true
}
