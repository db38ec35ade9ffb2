package hostexec

import "github.com/symgrad/symgrad/internal/program"

// Foresee returns the Footprint of the runner that New would make, without allocating memory or
// starting goroutines.
//
// Errors: those of New, except for a lack of memory.
func Foresee(p *program.Program, cfg Config, env program.Env) (arena, constants, scratch int64, err error) {
	k, err := ready(p, cfg, env, best())
	if err != nil {
		return 0, 0, 0, err
	}
	for i := range k.p.Values {
		if v := &k.p.Values[i]; v.Place == program.Constant {
			constants += int64(blockBytes(len(v.Data)))
		}
	}
	scratch = int64(blockBytes(k.work)) + int64(cfg.threads())*int64(blockBytes(k.scratch))
	return int64(blockBytes(int(k.p.Arena))), constants, scratch, nil
}

// Footprint returns the bytes of a loaded program, without bound memory: the arena, the constants,
// and the memory that steps work in, including the goroutines' share.
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
