// A clock for differences on one thread: the processor's counter if its rate is constant, else
// clock_gettime. `symgrad bench` reads its clock in the same way, so both pay the same cost.
#ifndef SYMGRAD_BENCH_CLOCK_H
#define SYMGRAD_BENCH_CLOCK_H

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <time.h>

#if defined(__x86_64__)
#include <cpuid.h>
#include <x86intrin.h>
#endif

struct clock {
	bool tsc;
	double per_ns;  // ticks per nanosecond
	double read_ns; // cost of one reading
};

static inline int64_t monotonic_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

#if defined(__x86_64__)
// Reads the counter after all earlier instructions and before all later ones.
static inline int64_t counter(void)
{
	unsigned int cpu;
	int64_t ticks = (int64_t)__rdtscp(&cpu);

	_mm_lfence();
	return ticks;
}

// AMD64 Architecture Programmer's Manual, volume 3, appendix E: 8000_0001 EDX bit 27 is RDTSCP,
// 8000_0007 EDX bit 8 is a counter with a constant rate in all states of the processor.
static inline bool counter_usable(void)
{
	unsigned int a, b, c, d;

	if (!__get_cpuid(0x80000001, &a, &b, &c, &d) || !(d & (1u << 27)))
		return false;
	return __get_cpuid(0x80000007, &a, &b, &c, &d) && (d & (1u << 8));
}
#else
static inline int64_t counter(void) { return monotonic_ns(); }
static inline bool counter_usable(void) { return false; }
#endif

// Reads counter and time at one moment: of several pairs, the one read fastest.
static inline void counter_and_time(int64_t *ticks, int64_t *ns)
{
	int64_t least = INT64_MAX;

	for (int i = 0; i < 20; i++) {
		int64_t before = counter(), now = monotonic_ns(), took = counter() - before;

		if (took < least) {
			least = took;
			*ns = now;
			*ticks = before + took / 2;
		}
	}
}

// Measures the ticks per nanosecond over 10 ms. With an error of 50 ns at each end the rate is
// right to 1 in 100,000.
static inline double counter_rate(void)
{
	int64_t t0 = 0, n0 = 0, t1 = 0, n1 = 0;

	counter_and_time(&t0, &n0);
	while (monotonic_ns() - n0 < 10000000)
		;
	counter_and_time(&t1, &n1);
	return (double)(t1 - t0) / (double)(n1 - n0);
}

static inline int64_t clock_ticks(const struct clock *c) { return c->tsc ? counter() : monotonic_ns(); }
static inline double clock_ns(const struct clock *c, int64_t ticks) { return (double)ticks / c->per_ns; }
static inline const char *clock_name(const struct clock *c) { return c->tsc ? "tsc" : "monotonic"; }

// Measures the cost of one reading in ns: the mean of the best of several windows. A single
// difference would not do, because a counter may move in steps of 10 ns.
static inline double read_cost(const struct clock *c)
{
	enum { WINDOWS = 50, READINGS = 200 };
	int64_t least = INT64_MAX;

	for (int i = 0; i < WINDOWS; i++) {
		int64_t begin = clock_ticks(c), end = begin;

		for (int j = 0; j < READINGS; j++)
			end = clock_ticks(c);
		if (end - begin < least)
			least = end - begin;
	}
	return clock_ns(c, least) / READINGS;
}

static inline struct clock clock_new(void)
{
	struct clock c = {.tsc = false, .per_ns = 1, .read_ns = 0};

	if (counter_usable()) {
		double first = counter_rate(), second = counter_rate();

		if (first > 0 && fabs(second / first - 1) <= 1e-3) {
			c.tsc = true;
			c.per_ns = second;
		}
	}
	c.read_ns = read_cost(&c);
	return c;
}

#endif
