// pingpong [-c CPU,CPU] [-r LOW,HIGH] measures the distance of two cores and prints it as one line
// of JSON.
//
// Two threads pass a cache line back and forth. A window is ROUNDS round trips; the result is the
// median over windows, with the 10th and the 90th percentile. Cores are near if that median is from
// LOW to HIGH ns. Exit codes: 0 the cores are near, 3 they are not, 1 nothing could be measured, 2
// an invalid command line.
//
// Without -c the cores are the first two that this process may run on.
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdalign.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "clock.h"

enum {
	ROUNDS = 2000,           // per window: 0.2 ms if the cores are near
	WINDOWS = 101,           // at most
	FEWEST = 5,              // windows, however slow
	LIMIT_NS = 500 * 1000000 // no further window after this
};

static struct {
	alignas(128) atomic_long ping; // neighbouring lines are fetched in pairs: one line each, and one between
	alignas(128) atomic_long pong;
	alignas(128) atomic_bool stop;
} line;

static int cpus[2] = {-1, -1};

static bool pin(int cpu)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(cpu, &set);
	return pthread_setaffinity_np(pthread_self(), sizeof set, &set) == 0;
}

// The other thread: it answers every ping until it must stop.
static void *answer(void *unused)
{
	long seen = 0;

	(void)unused;
	if (!pin(cpus[1])) {
		atomic_store(&line.pong, -1);
		return NULL;
	}
	while (!atomic_load_explicit(&line.stop, memory_order_relaxed)) {
		long now = atomic_load_explicit(&line.ping, memory_order_acquire);

		if (now != seen) {
			seen = now;
			atomic_store_explicit(&line.pong, now, memory_order_release);
		}
	}
	return NULL;
}

// Measures one window: ns per round trip; negative if the other thread does not answer.
static double window(const struct clock *clock, long *turn)
{
	int64_t t0 = clock_ticks(clock);

	for (int i = 0; i < ROUNDS; i++) {
		long got;

		atomic_store_explicit(&line.ping, ++*turn, memory_order_release);
		while ((got = atomic_load_explicit(&line.pong, memory_order_acquire)) != *turn)
			if (got < 0)
				return -1;
	}
	return clock_ns(clock, clock_ticks(clock) - t0) / ROUNDS;
}

static int ascending(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

// Measures windows, in ascending order. Returns their number, or 0 if the other thread does not
// answer.
static int measure(double *ns)
{
	struct clock clock = clock_new();
	pthread_t other;
	long turn = 0;
	int n = 0;

	if (pthread_create(&other, NULL, answer, NULL) != 0)
		return 0;
	if (window(&clock, &turn) >= 0) { // the first window, not counted, waits for the thread to start
		int64_t begin = monotonic_ns();

		while (n < WINDOWS && (n < FEWEST || monotonic_ns() - begin < LIMIT_NS))
			ns[n++] = window(&clock, &turn);
	}
	atomic_store(&line.stop, true);
	pthread_join(other, NULL);
	qsort(ns, (size_t)n, sizeof *ns, ascending);
	return n;
}

// Returns the first two cores that this process may run on.
static bool choose_cpus(void)
{
	cpu_set_t set;
	int n = 0;

	if (sched_getaffinity(0, sizeof set, &set) != 0)
		return false;
	for (int cpu = 0; cpu < CPU_SETSIZE && n < 2; cpu++)
		if (CPU_ISSET(cpu, &set))
			cpus[n++] = cpu;
	return n == 2;
}

int main(int argc, char **argv)
{
	double low = 0, high = 1e12, ns[WINDOWS];
	char end;
	int n;

	for (int option; (option = getopt(argc, argv, "c:r:")) != -1;) {
		if (option == 'c' && sscanf(optarg, "%d,%d%c", &cpus[0], &cpus[1], &end) == 2 && cpus[0] >= 0 && cpus[1] >= 0)
			continue;
		if (option == 'r' && sscanf(optarg, "%lf,%lf%c", &low, &high, &end) == 2)
			continue;
		fprintf(stderr, "pingpong: usage: pingpong [-c CPU,CPU] [-r LOW,HIGH]\n");
		return 2;
	}
	if (cpus[0] < 0 && !choose_cpus()) {
		fprintf(stderr, "pingpong: fewer than two cores to run on\n");
		return 1;
	}
	if (!pin(cpus[0]) || (n = measure(ns)) == 0) {
		fprintf(stderr, "pingpong: cores %d and %d cannot both be used\n", cpus[0], cpus[1]);
		return 1;
	}
	bool near = low <= ns[n / 2] && ns[n / 2] <= high;

	printf("{\"round_trip_ns\": %.1f, \"p10_ns\": %.1f, \"p90_ns\": %.1f, \"windows\": %d, \"cpus\": [%d, %d], ", ns[n / 2],
	       ns[n / 10], ns[n * 9 / 10], n, cpus[0], cpus[1]);
	printf("\"near_from_ns\": %g, \"near_to_ns\": %g, \"near\": %s}\n", low, high, near ? "true" : "false");
	return near ? 0 : 3;
}
