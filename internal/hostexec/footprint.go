package hostexec

// Footprint is the bytes that a loaded program holds besides the memory that is bound: those of its arena, of its constants,
// and of what steps work in, the goroutines' share included.
func (r *runner) Footprint() (arena, constants, scratch int64) {
	for _, b := range r.mem.fixed {
		constants += b.bytes()
	}
	scratch = r.mem.work.bytes()
	for _, b := range r.crew.blocks {
		scratch += b.bytes()
	}
	return r.mem.arena.bytes(), constants, scratch
}

func (b block) bytes() int64 { return 8 * int64(len(b.raw)) }
