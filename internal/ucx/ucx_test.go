package ucx

import (
	"fmt"
	"testing"

	"github.com/symgrad/symgrad/internal/wire/wiretest"
)

func TestWireKeepsTheRulesOfWires(t *testing.T) {
	for _, n := range []int{2, 3} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			ranks(t, n, Config{}, nil, func(w *Wire) error { return wiretest.Run(w) })
		})
	}
}
