// The collectives: their arguments, and the content of their buffers before and after.
#ifndef SYMGRAD_BENCH_OPS_H
#define SYMGRAD_BENCH_OPS_H

#include <mpi.h>
#include <stdbool.h>
#include <stdint.h>

#include "pattern.h"

enum op { ALLREDUCE, REDUCESCATTER, ALLGATHER, BROADCAST, ALLTOALL, BARRIER, OPS };

// The counting of an operation, with its name in `symgrad bench`.
struct trait {
	const char *name;
	bool blocks;   // the count of a row is that of one block; there is one block per rank
	bool reduces;
	bool in_place; // it has an in-place form; MPI_Bcast has no other
};

static const struct trait traits[OPS] = {
	[ALLREDUCE] = {"allreduce", false, true, true},
	[REDUCESCATTER] = {"reducescatter", true, true, true},
	[ALLGATHER] = {"allgather", true, false, true},
	[BROADCAST] = {"broadcast", false, false, true},
	[ALLTOALL] = {"alltoall", true, false, false}, // MPI has an in-place form, `symgrad bench` does not
	[BARRIER] = {"barrier", false, false, false},
};

enum { ROOT = 0, GUARD = 16 }; // GUARD floats follow the buffers

static const float guard_value = -12345;

// The two buffers of a rank, each followed by a guard.
struct memory {
	float *send, *recv;
	const struct pattern *of_rank; // of all ranks
	const struct pattern *sum;
	int rank, ranks;
};

// One row.
struct test {
	enum op op;
	bool in_place;
	size_t count;  // elements, as the call counts
	size_t extent; // elements of the larger buffer
};

static inline float *input_of(const struct test *t, const struct memory *m)
{
	if (t->op == ALLGATHER && t->in_place)
		return m->recv + (size_t)m->rank * t->count;
	if (t->in_place || (t->op == BROADCAST && m->rank != ROOT))
		return m->recv;
	return m->send;
}

static inline size_t input_count(const struct test *t, const struct memory *m)
{
	if (t->op == BARRIER || (t->op == BROADCAST && m->rank != ROOT))
		return 0;
	return t->op == ALLGATHER ? t->count : t->extent;
}

static inline void write_input(const struct test *t, const struct memory *m, size_t iteration)
{
	pattern_fill(&m->of_rank[m->rank], input_of(t, m), input_count(t, m), TURN * iteration);
}

// Counts the wrong elements of this rank's result.
static inline int64_t wrong_results(const struct test *t, const struct memory *m, size_t iteration)
{
	size_t phase = TURN * iteration;
	int64_t wrong = 0;

	switch (t->op) {
	case ALLREDUCE:
		return pattern_wrong(m->sum, m->recv, t->count, phase);
	case REDUCESCATTER:
		return pattern_wrong(m->sum, m->recv, t->count, phase + (size_t)m->rank * t->count);
	case BROADCAST: // the root's only buffer is its result as well
		return pattern_wrong(&m->of_rank[ROOT], m->rank == ROOT ? input_of(t, m) : m->recv, t->count, phase);
	case ALLGATHER:
	case ALLTOALL:
		if (t->op == ALLTOALL)
			phase += (size_t)m->rank * t->count;
		for (int r = 0; r < m->ranks; r++)
			wrong += pattern_wrong(&m->of_rank[r], m->recv + (size_t)r * t->count, t->count, phase);
		return wrong;
	default:
		return 0;
	}
}

// Prepares a checked iteration: poison in the result, guards after it, a new input.
static inline void prepare_check(const struct test *t, const struct memory *m, size_t iteration)
{
	for (size_t i = 0; i < t->extent; i++)
		m->recv[i] = guard_value;
	for (size_t i = t->extent; i < t->extent + GUARD; i++)
		m->send[i] = m->recv[i] = guard_value;
	write_input(t, m, iteration);
}

// Returns wrong_results plus changes in the guards and, out of place, in the input.
static inline int64_t check(const struct test *t, const struct memory *m, size_t iteration)
{
	int64_t wrong = wrong_results(t, m, iteration);

	for (size_t i = t->extent; i < t->extent + GUARD; i++)
		wrong += (m->send[i] != guard_value) + (m->recv[i] != guard_value);
	if (!t->in_place)
		wrong += pattern_wrong(&m->of_rank[m->rank], input_of(t, m), input_count(t, m), TURN * iteration);
	return wrong;
}

static inline void call(const struct test *t, const struct memory *m)
{
	const void *send = t->in_place ? MPI_IN_PLACE : (const void *)m->send;
	int n = (int)t->count;

	switch (t->op) {
	case ALLREDUCE:
		MPI_Allreduce(send, m->recv, n, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
		break;
	case REDUCESCATTER:
		MPI_Reduce_scatter_block(send, m->recv, n, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
		break;
	case ALLGATHER:
		MPI_Allgather(send, n, MPI_FLOAT, m->recv, n, MPI_FLOAT, MPI_COMM_WORLD);
		break;
	case BROADCAST:
		MPI_Bcast(m->rank == ROOT ? input_of(t, m) : m->recv, n, MPI_FLOAT, ROOT, MPI_COMM_WORLD);
		break;
	case ALLTOALL:
		MPI_Alltoall(send, n, MPI_FLOAT, m->recv, n, MPI_FLOAT, MPI_COMM_WORLD);
		break;
	default:
		MPI_Barrier(MPI_COMM_WORLD);
	}
}

#endif
