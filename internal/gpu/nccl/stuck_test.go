package nccl

import (
	"testing"
	"testing/synctest"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/internal/gpu"
)

// An abort does not come back where a kernel of another engine stays on the device for good.
func TestMemberWhoseAbortDoesNotEndIsLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &member{lib: &Library{members: map[*dist.Group]*member{}}, member: &gpu.Member{}, refs: 1}
		m.plain = &Comm{done: make(chan struct{})}
		m.plain.ending.Store(aborting)
		e := &plain{engine: engine{m: m, comm: m.plain}}
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	})
}
