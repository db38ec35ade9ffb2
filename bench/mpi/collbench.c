// collbench measures MPI collectives of float32 as `symgrad bench` measures its own, and prints one
// line of JSON per row.
//
//	collbench [-o OP,...] [-b MIN] [-e MAX] [-f FACTOR] [-i] [-r] [-n ITERS | -t MS] [-c CHECKS] [-l LABEL]
//
//	-o  operations, as allreduce,barrier or all          -i  in place
//	-b  smallest size of a rank's larger buffer          -r  fresh: before each iteration, untimed, read the last
//	-e  largest size; both take K, M and G                   result and rewrite the input
//	-f  factor from one size to the next                 -n  timed iterations of a row
//	-l  name of the engine in the output                 -t  or the ms a row may take (5 iterations at least)
//	-c  checked iterations before a row is timed
//
// An untimed barrier precedes each iteration, as in the OSU benchmarks. A row's time is the mean, over
// iterations and ranks, of the time from a clock reading before the call to one after it. The header
// has the cost of a reading, which is not subtracted. Exit codes: 0, 1 if a result was wrong, 2 for an
// invalid command line.
#define _GNU_SOURCE
#include <limits.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "clock.h"
#include "ops.h"

enum {
	LEAST_ITERS = 5,
	MOST_ITERS = 10000,
	TRIAL = 3 // untimed iterations that estimate how many can be timed
};

struct options {
	bool ops[OPS];
	size_t min_bytes, max_bytes, factor;
	bool in_place, fresh;
	int iters; // 0 means as many as budget_ms allows
	int budget_ms, checks;
	const char *label;
};

static int rank, ranks;

// Ends all ranks; rank 0 prints the reason.
static _Noreturn void usage(const char *what, const char *value)
{
	if (rank == 0)
		fprintf(stderr, "collbench: %s %s: see the head of collbench.c\n", what, value);
	MPI_Finalize();
	exit(2);
}

// Parses an integer from low to high, with an optional suffix K, M or G.
static size_t number(const char *what, const char *text, size_t low, size_t high)
{
	char *end;
	unsigned long long v = strtoull(text, &end, 10);
	int shift = *end == 'K' ? 10 : *end == 'M' ? 20 : *end == 'G' ? 30 : 0;

	if (end == text || *text == '-' || end[shift > 0] != '\0' || v > (ULLONG_MAX >> shift))
		usage(what, text);
	v <<= shift;
	if (v < low || v > high)
		usage(what, text);
	return (size_t)v;
}

static void choose_ops(struct options *o, char *list)
{
	for (char *word = strtok(list, ","); word != NULL; word = strtok(NULL, ",")) {
		bool known = false;

		for (int op = 0; op < OPS; op++)
			if (strcmp(word, traits[op].name) == 0 || strcmp(word, "all") == 0)
				known = o->ops[op] = true;
		if (!known)
			usage("operation", word);
	}
}

static struct options parse(int argc, char **argv)
{
	struct options o = {
		.min_bytes = 8, .max_bytes = 64 << 20, .factor = 4, .budget_ms = 30, .checks = 1, .label = "mpi"};
	bool chosen = false;

	opterr = rank == 0;
	for (int option; (option = getopt(argc, argv, "o:b:e:f:irn:t:c:l:")) != -1;)
		switch (option) {
		case 'o': choose_ops(&o, optarg); chosen = true; break;
		case 'b': o.min_bytes = number("size", optarg, 1, 1 << 30); break;
		case 'e': o.max_bytes = number("size", optarg, 1, 1 << 30); break;
		case 'f': o.factor = number("factor", optarg, 2, 1 << 20); break;
		case 'i': o.in_place = true; break;
		case 'r': o.fresh = true; break;
		case 'n': o.iters = (int)number("iterations", optarg, 1, 1 << 24); break;
		case 't': o.budget_ms = (int)number("time", optarg, 1, 600000); break;
		case 'c': o.checks = (int)number("checks", optarg, 0, 1 << 20); break;
		case 'l': o.label = optarg; break;
		default: usage("an option", "that is unknown");
		}
	if (optind < argc)
		usage("argument", argv[optind]);
	if (o.min_bytes > o.max_bytes)
		usage("sizes", "whose smallest is larger than the largest");
	for (int op = 0; !chosen && op < OPS; op++)
		o.ops[op] = true;
	return o;
}

// The untimed part of an iteration.
static int64_t freshen(const struct test *t, const struct memory *m, size_t iteration)
{
	int64_t wrong = wrong_results(t, m, iteration);

	write_input(t, m, iteration + 1);
	return wrong;
}

// Runs iterations first to first+n-1, each on the input written before it; adds to wrong the errors
// that fresh iterations find. Returns: ticks in the call, on this rank.
static int64_t iterate(const struct options *o, const struct test *t, const struct memory *m, const struct clock *c,
                       size_t first, int n, int64_t *wrong)
{
	int64_t in_call = 0;

	for (int i = 0; i < n; i++) {
		MPI_Barrier(MPI_COMM_WORLD);

		int64_t t0 = clock_ticks(c);

		call(t, m);
		in_call += clock_ticks(c) - t0;
		if (o->fresh)
			*wrong += freshen(t, m, first + (size_t)i);
	}
	return in_call;
}

// Runs checked iterations, then sets the input of the timed ones: the pattern, or zeros for
// reductions in place that are not fresh. There the result of an iteration is the input of the
// next, and would grow without bound.
static int64_t check_and_load(const struct options *o, const struct test *t, const struct memory *m)
{
	int64_t wrong = 0;
	size_t iteration = 0;

	for (; iteration < (size_t)o->checks; iteration++) {
		prepare_check(t, m, iteration);
		MPI_Barrier(MPI_COMM_WORLD);
		call(t, m);
		wrong += check(t, m, iteration);
		MPI_Barrier(MPI_COMM_WORLD);
	}
	write_input(t, m, iteration);
	if (!o->fresh && t->in_place && traits[t->op].reduces)
		memset(m->recv, 0, t->extent * sizeof(float));
	return wrong;
}

// Returns how many iterations the budget allows, the same number on all ranks.
static int affordable(const struct options *o, double ns_each)
{
	double slowest;

	if (o->iters > 0)
		return o->iters;
	MPI_Allreduce(&ns_each, &slowest, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);

	double n = o->budget_ms * 1e6 / (slowest > 1 ? slowest : 1);

	return n < LEAST_ITERS ? LEAST_ITERS : n > MOST_ITERS ? MOST_ITERS : (int)n;
}

static void print_row(const struct test *t, double us, int iters, int64_t wrong)
{
	size_t bytes = t->extent * sizeof(float);
	double alg = us > 0 ? (double)bytes / us / 1e3 : 0, n = ranks, bus = 1;

	if (t->op == ALLREDUCE)
		bus = 2 * (n - 1) / n;
	else if (traits[t->op].blocks)
		bus = (n - 1) / n;
	printf("{\"kind\": \"row\", \"op\": \"%s\", \"bytes\": %zu, \"count\": %zu, \"dtype\": \"f32\", ", traits[t->op].name,
	       bytes, t->count);
	printf("\"redop\": \"%s\", \"in_place\": %s, ", traits[t->op].reduces ? "sum" : "none", t->in_place ? "true" : "false");
	printf("\"time_us\": %.4f, \"algbw_gbs\": %.4f, \"busbw_gbs\": %.4f, ", us, alg, alg * bus);
	printf("\"iters\": %d, \"wrong\": %lld}\n", iters, (long long)wrong);
	fflush(stdout);
}

// Measures one row and prints it on rank 0.
// Returns: wrong elements on all ranks.
static int64_t measure(const struct options *o, const struct test *t, const struct memory *m, const struct clock *c)
{
	int64_t wrong = check_and_load(o, t, m), all_wrong;
	size_t done = (size_t)o->checks;
	int64_t began = clock_ticks(c);

	iterate(o, t, m, c, done, TRIAL, &wrong);
	done += TRIAL;

	int iters = affordable(o, clock_ns(c, clock_ticks(c) - began) / TRIAL), warmup = iters / 10;

	iterate(o, t, m, c, done, warmup, &wrong);
	done += (size_t)warmup;

	double us = clock_ns(c, iterate(o, t, m, c, done, iters, &wrong)) / iters / 1e3, sum;

	MPI_Reduce(&us, &sum, 1, MPI_DOUBLE, MPI_SUM, 0, MPI_COMM_WORLD);
	MPI_Allreduce(&wrong, &all_wrong, 1, MPI_INT64_T, MPI_SUM, MPI_COMM_WORLD);
	if (rank == 0)
		print_row(t, sum / ranks, iters, all_wrong);
	return all_wrong;
}

// Measures all sizes of one operation. Sizes with the same number of elements are one row.
static int64_t sweep(const struct options *o, enum op op, const struct memory *m, const struct clock *c)
{
	size_t blocks = traits[op].blocks ? (size_t)ranks : 1, last = 0;
	int64_t wrong = 0;

	if (o->in_place && !traits[op].in_place)
		return 0;
	if (op == BARRIER)
		return measure(o, &(struct test){.op = op}, m, c);
	for (size_t bytes = o->min_bytes; bytes <= o->max_bytes; bytes *= o->factor) {
		size_t count = bytes / sizeof(float) / blocks;

		if (count == 0)
			count = 1;
		if (count == last)
			continue;
		last = count;
		wrong += measure(
			o, &(struct test){.op = op, .in_place = o->in_place, .count = count, .extent = count * blocks}, m, c);
	}
	return wrong;
}

// Returns the only core that this rank may run on; -1 if there are several.
static int own_core(void)
{
	cpu_set_t set;
	int core = -1;

	if (sched_getaffinity(0, sizeof set, &set) != 0 || CPU_COUNT(&set) != 1)
		return -1;
	while (!CPU_ISSET(++core, &set))
		;
	return core;
}

// Prints one line about the run. The first line of the library's version has no characters that
// JSON would escape, except quotes and backslashes, which become spaces.
static void print_header(const struct options *o, const struct clock *c)
{
	char library[MPI_MAX_LIBRARY_VERSION_STRING];
	int length, core = own_core(), cores[ranks];

	MPI_Gather(&core, 1, MPI_INT, cores, 1, MPI_INT, 0, MPI_COMM_WORLD);
	if (rank != 0)
		return;
	MPI_Get_library_version(library, &length);
	library[strcspn(library, "\n")] = '\0';
	for (char *p = library; *p != '\0'; p++)
		if (*p == '"' || *p == '\\' || (unsigned char)*p < ' ')
			*p = ' ';
	printf("{\"kind\": \"header\", \"engine\": \"%s\", \"library\": \"%s\", \"ranks\": %d, ", o->label, library, ranks);
	printf("\"style\": \"osu\", \"fresh\": %s, \"in_place\": %s, ", o->fresh ? "true" : "false",
	       o->in_place ? "true" : "false");
	printf("\"clock\": {\"name\": \"%s\", \"read_ns\": %.1f}, \"cores\": [", clock_name(c), c->read_ns);
	for (int r = 0; r < ranks; r++)
		printf("%s%d", r > 0 ? ", " : "", cores[r]);
	printf("]}\n");
}

// Returns page-aligned memory that this rank has touched.
static float *allocate(size_t bytes)
{
	void *p;

	if (posix_memalign(&p, 4096, bytes) != 0) {
		fprintf(stderr, "collbench: no memory for %zu bytes on rank %d\n", bytes, rank);
		MPI_Abort(MPI_COMM_WORLD, 1);
		exit(1);
	}
	return memset(p, 0, bytes);
}

int main(int argc, char **argv)
{
	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &ranks);

	struct options o = parse(argc, argv);
	struct clock clock = clock_new();
	size_t bytes = o.max_bytes + ((size_t)ranks + GUARD) * sizeof(float); // a row has at least one element per rank
	struct pattern *of_rank = calloc((size_t)ranks + 1, sizeof *of_rank);
	struct memory m = {.send = allocate(bytes), .recv = allocate(bytes), .of_rank = of_rank, .rank = rank, .ranks = ranks};
	int64_t wrong = 0;

	if (of_rank == NULL)
		MPI_Abort(MPI_COMM_WORLD, 1);
	for (int r = 0; r < ranks; r++)
		pattern_of_rank(&of_rank[r], r);
	pattern_of_sum(&of_rank[ranks], ranks);
	m.sum = &of_rank[ranks];
	print_header(&o, &clock);
	for (int op = 0; op < OPS; op++)
		if (o.ops[op])
			wrong += sweep(&o, (enum op)op, &m, &clock);
	if (rank == 0)
		printf("{\"kind\": \"end\", \"wrong\": %lld}\n", (long long)wrong);
	free(m.send);
	free(m.recv);
	free(of_rank);
	MPI_Finalize();
	return wrong > 0;
}
