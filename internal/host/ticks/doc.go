// Package ticks is a clock for short times. On amd64 it reads the processor's time stamp counter,
// which takes a few nanoseconds, where time.Now takes some forty. It does so only if the counter
// has a constant rate on all cores, as the processor reports (Intel SDM volume 3, "Invariant TSC";
// AMD64 APM volume 3, CPUID 8000_0007h). Otherwise it uses time.Now.
package ticks
