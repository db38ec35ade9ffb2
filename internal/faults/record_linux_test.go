package faults

import (
	"sync"
	"time"
)

type recorder struct{ mu sync.Mutex }

var records recorder

func (r *recorder) add(name string, passed bool, slowest time.Duration) {}
func (r *recorder) write() error                                        { return nil }
