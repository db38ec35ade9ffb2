package invariants_test

import (
	"fmt"

	"github.com/symgrad/symgrad/internal/invariants"
)

// slab is memory that is freed once, whatever its public Close allows.
type slab struct {
	bytes []byte
	once  invariants.CloseChecker
}

func (s *slab) free() {
	s.once.Close()
	invariants.Mangle(s.bytes)
	s.bytes = nil
}

func Example() {
	s := &slab{bytes: make([]byte, 4)}
	s.free()
	fmt.Println(s.bytes == nil)
	// Output: true
}
