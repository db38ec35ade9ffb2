package hostexec

import "fmt"

// addressable is more bytes than a process can address.
const addressable = 1 << 47

// fits returns an error if the arena and the working memory exceed the machine's memory: Go would
// end the process without telling the caller. A machine of 0 bytes is unknown.
func fits(arena, work, machine int64) error {
	limit := int64(addressable)
	if machine > 0 {
		limit = min(limit, machine)
	}
	if arena < 0 || work < 0 || arena > limit || work > limit-arena {
		return fmt.Errorf("an arena of %d B, and %d B of working memory, exceed the %d B of memory: use a smaller batch", arena, work, limit)
	}
	return nil
}
