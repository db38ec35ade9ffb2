// What two cores take by hand: the few functions of MPI that collbench calls, for two processes and up to 4 KiB, with nothing besides
// that a library needs: no checks, no errors, no third rank, no waiting but spinning. Compiled with this in place of MPI's header,
// collbench measures what is left when everything else is taken away.
#ifndef SYMGRAD_BENCH_BARE_MPI_H
#define SYMGRAD_BENCH_BARE_MPI_H

#include <immintrin.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define MPI_MAX_LIBRARY_VERSION_STRING 64
#define MPI_IN_PLACE ((void *)-1)
enum { MPI_COMM_WORLD, MPI_FLOAT, MPI_DOUBLE, MPI_INT, MPI_INT64_T, MPI_SUM, MPI_MAX };

enum { BARE_MOST = 4096, BARE_LINE = 48 };

// What one rank writes and the other reads. Up to BARE_LINE bytes travel in one cache line with the number of the call.
struct bare_slot {
	_Alignas(128) char line[BARE_LINE];
	_Atomic uint64_t seq;
	_Alignas(128) char data[BARE_MOST];
};

struct bare_side {
	struct bare_slot slot[2]; // by parity: who is in call k+2 knows that the other is done with k
	_Alignas(128) _Atomic uint64_t met;
};

static struct {
	struct bare_side *own, *peer;
	int rank;
	pid_t child;
	uint64_t seq, met;
} bare;

static inline void bare_await(_Atomic uint64_t *at, uint64_t seq)
{
	while (atomic_load_explicit(at, memory_order_acquire) < seq)
		;
}

// Posts n bytes and gives the other's.
static inline const void *bare_exchange(const void *src, size_t n)
{
	uint64_t seq = ++bare.seq;
	struct bare_slot *own = &bare.own->slot[seq & 1], *peer = &bare.peer->slot[seq & 1];

	memcpy(n <= BARE_LINE ? own->line : own->data, src, n);
	atomic_store_explicit(&own->seq, seq, memory_order_release);
	bare_await(&peer->seq, seq);
	return n <= BARE_LINE ? peer->line : peer->data;
}

static inline int MPI_Init(int *argc, char ***argv)
{
	struct bare_side *all = mmap(NULL, 2 * sizeof *all, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	cpu_set_t set, one;
	int n = 0;

	(void)argc, (void)argv;
	if (all == MAP_FAILED || (bare.child = fork()) < 0)
		exit(1);
	bare.rank = bare.child == 0;
	bare.own = all + bare.rank;
	bare.peer = all + !bare.rank;
	sched_getaffinity(0, sizeof set, &set);
	for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
		if (CPU_ISSET(cpu, &set) && n++ == bare.rank) {
			CPU_ZERO(&one);
			CPU_SET(cpu, &one);
			sched_setaffinity(0, sizeof one, &one);
		}
	return 0;
}

static inline int MPI_Finalize(void)
{
	int status = 0;

	if (bare.rank == 0)
		waitpid(bare.child, &status, 0);
	return 0;
}

static inline int MPI_Abort(int comm, int code)
{
	(void)comm;
	exit(code);
}

static inline int MPI_Comm_rank(int comm, int *rank) { return (void)comm, *rank = bare.rank, 0; }
static inline int MPI_Comm_size(int comm, int *ranks) { return (void)comm, *ranks = 2, 0; }

static inline int MPI_Get_library_version(char *text, int *length)
{
	*length = sprintf(text, "none: two processes by hand");
	return 0;
}

static inline int MPI_Barrier(int comm)
{
	(void)comm;
	atomic_store_explicit(&bare.own->met, ++bare.met, memory_order_release);
	bare_await(&bare.peer->met, bare.met);
	return 0;
}

static inline void bare_sum(float *dst, const float *first, const float *second, int n)
{
	for (int i = 0; i < n; i++)
		dst[i] = first[i] + second[i];
}

static inline int MPI_Allreduce(const void *src, void *dst, int n, int type, int op, int comm)
{
	(void)comm;
	if (src == MPI_IN_PLACE)
		src = dst;
	const void *theirs = bare_exchange(src, (size_t)n * (type == MPI_FLOAT ? 4 : 8));
	if (type == MPI_FLOAT)
		bare_sum(dst, bare.rank == 0 ? src : theirs, bare.rank == 0 ? theirs : src, n);
	else if (type == MPI_DOUBLE)
		*(double *)dst = op == MPI_MAX && *(double *)src > *(const double *)theirs ? *(double *)src : *(const double *)theirs;
	else
		*(int64_t *)dst = *(const int64_t *)src + *(const int64_t *)theirs;
	return 0;
}

static inline int MPI_Reduce(const void *src, void *dst, int n, int type, int op, int root, int comm)
{
	(void)n, (void)type, (void)op, (void)root, (void)comm;
	*(double *)dst = *(const double *)src + *(const double *)bare_exchange(src, 8);
	return 0;
}

static inline int MPI_Gather(const void *src, int n, int type, void *dst, int m, int type2, int root, int comm)
{
	(void)n, (void)type, (void)m, (void)type2, (void)root, (void)comm;
	int theirs = *(const int *)bare_exchange(src, 4);
	((int *)dst)[bare.rank] = *(const int *)src;
	((int *)dst)[!bare.rank] = theirs;
	return 0;
}

static inline int MPI_Reduce_scatter_block(const void *src, void *dst, int n, int type, int op, int comm)
{
	(void)type, (void)op, (void)comm;
	if (src == MPI_IN_PLACE)
		src = dst;
	const float *mine = (const float *)src + bare.rank * n;
	const float *theirs = bare_exchange((const float *)src + !bare.rank * n, (size_t)n * 4);
	bare_sum(dst, bare.rank == 0 ? mine : theirs, bare.rank == 0 ? theirs : mine, n);
	return 0;
}

static inline int MPI_Allgather(const void *src, int n, int type, void *dst, int m, int type2, int comm)
{
	(void)type, (void)m, (void)type2, (void)comm;
	float *own = (float *)dst + bare.rank * n, *other = (float *)dst + !bare.rank * n;
	if (src == MPI_IN_PLACE)
		src = own;
	const void *theirs = bare_exchange(src, (size_t)n * 4);
	if (src != own)
		memcpy(own, src, (size_t)n * 4);
	memcpy(other, theirs, (size_t)n * 4);
	return 0;
}

static inline int MPI_Alltoall(const void *src, int n, int type, void *dst, int m, int type2, int comm)
{
	(void)type, (void)m, (void)type2, (void)comm;
	const void *theirs = bare_exchange((const float *)src + !bare.rank * n, (size_t)n * 4);
	memcpy((float *)dst + bare.rank * n, (const float *)src + bare.rank * n, (size_t)n * 4);
	memcpy((float *)dst + !bare.rank * n, theirs, (size_t)n * 4);
	return 0;
}

// The root waits for nobody but who has not taken what lay in the slot.
static inline int MPI_Bcast(void *buf, int n, int type, int root, int comm)
{
	(void)type, (void)comm;
	uint64_t seq = ++bare.seq;
	struct bare_slot *own = &bare.own->slot[seq & 1], *peer = &bare.peer->slot[seq & 1];
	size_t bytes = (size_t)n * 4;

	if (bare.rank == root) {
		bare_await(&peer->seq, seq > 2 ? seq - 2 : 0);
		memcpy(bytes <= BARE_LINE ? own->line : own->data, buf, bytes);
		atomic_store_explicit(&own->seq, seq, memory_order_release);
		return 0;
	}
	bare_await(&peer->seq, seq);
	memcpy(buf, bytes <= BARE_LINE ? peer->line : peer->data, bytes);
	atomic_store_explicit(&own->seq, seq, memory_order_release);
	return 0;
}

#endif
