// Package ticks is a clock for short times: on amd64 the processor's time stamp counter, which
// takes a few nanoseconds to read where time.Now takes some forty. It is used only where the
// counter runs at one rate on all cores, as the processor tells (Intel SDM volume 3, "Invariant
// TSC"; AMD64 APM volume 3, CPUID 8000_0007h); elsewhere time.Now is.
package ticks
