package hostexec

import "fmt"

// addressable is more than a process has addresses for.
const addressable = 1 << 47

// fits returns the error of a program whose arena and working memory exceed the machine's: Go would
// end the process that asks for them, without an error. A machine of 0 bytes is unknown.
func fits(arena, work, machine int64) error {
	limit := int64(addressable)
	if machine > 0 {
		limit = min(limit, machine)
	}
	if arena < 0 || work < 0 || arena > limit || work > limit-arena {
		return fmt.Errorf("an arena of %d B, and %d B to work in, are more than the %d B that memory has: smaller batches need less", arena, work, limit)
	}
	return nil
}
