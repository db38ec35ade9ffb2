package mpi_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/symgrad/symgrad/internal/wire/wiretest"
)

var scenes = map[string]func() error{
	"rules": rulesScene,
}

func rulesScene() error {
	w, err := open()
	if err != nil {
		return err
	}
	return closed(w, errors.Join(wiretest.Run(w), w.Close()))
}

func TestMPIKeepsTheRulesOfWires(t *testing.T) {
	each(t, func(t *testing.T, s suite) {
		for _, n := range []int{2, 3} {
			t.Run(fmt.Sprint(n), func(t *testing.T) { s.must(t, n, "rules") })
		}
	})
}
