// The least time that cores need: the functions of MPI that collbench calls, for the number of
// processes in the environment variable BARE_RANKS (2 by default), without the rest of a library:
// no checks, no errors, no recovery. Waiting spins, or yields if processes share cores. Up to
// BARE_SLOT bytes pass through slots; larger data is read in place, because all buffers are shared
// memory. Compiled with this instead of MPI's header, collbench measures the lower bound of a
// library's time.
#ifndef SYMGRAD_BENCH_BARE_MPI_H
#define SYMGRAD_BENCH_BARE_MPI_H

#include <errno.h>
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

enum { BARE_SLOT = 4096, BARE_LINE = 48, BARE_MOST = 64, BARE_SPINS = 100 };

// The part of a rank's memory that others read. Up to BARE_LINE bytes are in one cache line with
// the number of the call.
struct bare_slot {
	_Alignas(128) char line[BARE_LINE];
	_Atomic uint64_t seq;
	_Alignas(128) char data[BARE_SLOT];
};

struct bare_side {
	struct bare_slot slot[2]; // by parity: a rank in call k+2 knows that the others have finished k
	_Alignas(128) _Atomic uint64_t met;
	_Alignas(128) _Atomic uint64_t done; // last call whose buffers this rank has read and written
};

// The addresses of a call's buffers, which are equal in all processes.
struct bare_place {
	const char *src;
	char *dst;
};

static struct {
	struct bare_side *side; // of all ranks
	char *heap;             // of this rank
	int rank, ranks;
	bool crowded; // processes share cores
	uint64_t seq, met;
} bare;

static const size_t bare_heap = (size_t)1 << 32; // address space of each rank's buffers

// collbench's buffers are shared memory as well, and stay until the end.
static inline int bare_memalign(void **p, size_t align, size_t bytes)
{
	*p = bare.heap;
	bare.heap += (bytes + align - 1) / align * align;
	return 0;
}
#define posix_memalign bare_memalign
#define free(p) ((void)(p))

static inline void bare_await(_Atomic uint64_t *at, uint64_t seq)
{
	for (int spins = 1; atomic_load_explicit(at, memory_order_acquire) < seq; spins++)
		if (bare.crowded && spins % BARE_SPINS == 0)
			sched_yield();
}

static inline struct bare_slot *bare_slot_of(int rank) { return &bare.side[rank].slot[bare.seq & 1]; }

static inline const void *bare_given(int rank, size_t n)
{
	return n <= BARE_LINE ? bare_slot_of(rank)->line : bare_slot_of(rank)->data;
}

// Starts a call by posting n bytes.
static inline void bare_post(const void *src, size_t n)
{
	struct bare_slot *own = bare_slot_of(bare.rank);

	memcpy(n <= BARE_LINE ? own->line : own->data, src, n);
	atomic_store_explicit(&own->seq, bare.seq, memory_order_release);
}

// Starts a call by posting n bytes, and waits for all others.
static inline void bare_exchange(const void *src, size_t n)
{
	++bare.seq;
	bare_post(src, n);
	for (int r = 0; r < bare.ranks; r++)
		bare_await(&bare_slot_of(r)->seq, bare.seq);
}

// Starts a call by posting the buffers' addresses, and gets the others'.
static inline void bare_meet(const void *src, void *dst)
{
	struct bare_place own = {src, dst};

	bare_exchange(&own, sizeof own);
}

static inline const struct bare_place *bare_place_of(int rank) { return bare_given(rank, sizeof(struct bare_place)); }

// Ends a call that started with addresses.
static inline void bare_part(void)
{
	atomic_store_explicit(&bare.side[bare.rank].done, bare.seq, memory_order_release);
	for (int r = 0; r < bare.ranks; r++)
		bare_await(&bare.side[r].done, bare.seq);
}

static inline int MPI_Init(int *argc, char ***argv)
{
	const char *ranks = getenv("BARE_RANKS");
	cpu_set_t set, one;
	int n = 0;

	(void)argc, (void)argv;
	bare.ranks = ranks != NULL ? atoi(ranks) : 2;
	if (bare.ranks < 1 || bare.ranks > BARE_MOST)
		exit(2);
	bare.side = mmap(NULL, (size_t)bare.ranks * (sizeof *bare.side + bare_heap), PROT_READ | PROT_WRITE,
	                 MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (bare.side == MAP_FAILED)
		exit(1);
	while (bare.rank + 1 < bare.ranks) {
		pid_t child = fork();

		if (child < 0)
			exit(1);
		if (child > 0)
			break;
		bare.rank++;
	}
	bare.heap = (char *)(bare.side + bare.ranks) + (size_t)bare.rank * bare_heap;
	bare.heap += -(uintptr_t)bare.heap % 4096;
	sched_getaffinity(0, sizeof set, &set);
	bare.crowded = bare.ranks > CPU_COUNT(&set);
	for (int cpu = 0; cpu < CPU_SETSIZE && !bare.crowded; cpu++)
		if (CPU_ISSET(cpu, &set) && n++ == bare.rank) {
			CPU_ZERO(&one);
			CPU_SET(cpu, &one);
			sched_setaffinity(0, sizeof one, &one);
		}
	return 0;
}

static inline int MPI_Finalize(void)
{
	wait(NULL); // each rank except the last has started the next one
	return 0;
}

static inline int MPI_Abort(int comm, int code)
{
	(void)comm;
	exit(code);
}

static inline int MPI_Comm_rank(int comm, int *rank) { return (void)comm, *rank = bare.rank, 0; }
static inline int MPI_Comm_size(int comm, int *ranks) { return (void)comm, *ranks = bare.ranks, 0; }

static inline int MPI_Get_library_version(char *text, int *length)
{
	*length = sprintf(text, "none: processes by hand");
	return 0;
}

static inline int MPI_Barrier(int comm)
{
	(void)comm;
	atomic_store_explicit(&bare.side[bare.rank].met, ++bare.met, memory_order_release);
	for (int r = 0; r < bare.ranks; r++)
		bare_await(&bare.side[r].met, bare.met);
	return 0;
}

// dst[i] = the sum over the ranks, in order, of src[rank][i].
static inline void bare_sum(float *dst, const float *const *src, size_t n)
{
	if (bare.ranks == 2) {
		const float *a = src[0], *b = src[1];

#pragma GCC ivdep
		for (size_t i = 0; i < n; i++)
			dst[i] = a[i] + b[i];
		return;
	}
	for (size_t from = 0; from < n; from += 1024) { // parts that fit into the first-level cache
		size_t to = from + 1024 < n ? from + 1024 : n;
		const float *a = src[0], *b = src[1];

#pragma GCC ivdep
		for (size_t i = from; i < to; i++)
			dst[i] = a[i] + b[i];
		for (int r = 2; r < bare.ranks; r++) {
			const float *c = src[r];

#pragma GCC ivdep
			for (size_t i = from; i < to; i++)
				dst[i] += c[i];
		}
	}
}

// Sets given to the data of each rank in a call of n bytes in slots, from element at on. This
// rank's own data is src, which others do not read, unless the sum in dst would overwrite src too
// early.
static inline void bare_gather(const float **given, const void *src, const void *dst, size_t n, size_t at)
{
	for (int r = 0; r < bare.ranks; r++)
		given[r] = (const float *)(r == bare.rank && (src != dst || bare.ranks == 2) ? src : bare_given(r, n)) + at;
}

// Each rank sums a block and stores it in all ranks' results.
static inline void bare_allreduce(const float *src, float *dst, size_t n)
{
	const size_t line = 64;
	size_t per = (n / (size_t)bare.ranks + line - 1) / line * line, from = per * (size_t)bare.rank;
	size_t to = bare.rank == bare.ranks - 1 ? n : from + per;
	const float *from_rank[BARE_MOST];

	bare_meet(src, dst);
	if (to > n)
		to = n;
	for (size_t part = 1024; from < to; from += part) {
		size_t m = to - from < part ? to - from : part;
		float sum[1024];

		for (int r = 0; r < bare.ranks; r++)
			from_rank[r] = (const float *)bare_place_of(r)->src + from;
		bare_sum(sum, from_rank, m);
		for (int r = 0; r < bare.ranks; r++)
			memcpy((float *)bare_place_of(r)->dst + from, sum, m * 4);
	}
	bare_part();
}

// Reduces a single number that collbench itself needs.
static inline void bare_number(const void *src, void *dst, int type, int op)
{
	bare_exchange(src, 8);
	memcpy(dst, src, 8);
	for (int r = 0; r < bare.ranks; r++) {
		const void *given = bare_given(r, 8);

		if (r == bare.rank)
			continue;
		if (type == MPI_INT64_T)
			*(int64_t *)dst += *(const int64_t *)given;
		else if (op == MPI_SUM)
			*(double *)dst += *(const double *)given;
		else if (*(const double *)given > *(double *)dst)
			*(double *)dst = *(const double *)given;
	}
}

static inline int MPI_Allreduce(const void *src, void *dst, int n, int type, int op, int comm)
{
	const float *given[BARE_MOST];

	(void)comm;
	if (src == MPI_IN_PLACE)
		src = dst;
	if (type != MPI_FLOAT)
		return bare_number(src, dst, type, op), 0;
	if ((size_t)n * 4 > BARE_SLOT)
		return bare_allreduce(src, dst, (size_t)n), 0;
	bare_exchange(src, (size_t)n * 4);
	bare_gather(given, src, dst, (size_t)n * 4, 0);
	bare_sum(dst, given, (size_t)n);
	return 0;
}

static inline int MPI_Reduce(const void *src, void *dst, int n, int type, int op, int root, int comm)
{
	(void)n, (void)root;
	return MPI_Allreduce(src, dst, 1, type, op, comm);
}

static inline int MPI_Gather(const void *src, int n, int type, void *dst, int m, int type2, int root, int comm)
{
	(void)n, (void)type, (void)m, (void)type2, (void)root, (void)comm;
	bare_exchange(src, 4);
	for (int r = 0; r < bare.ranks; r++)
		((int *)dst)[r] = *(const int *)bare_given(r, 4);
	return 0;
}

static inline int MPI_Reduce_scatter_block(const void *src, void *dst, int n, int type, int op, int comm)
{
	size_t bytes = (size_t)bare.ranks * (size_t)n * 4, at = (size_t)bare.rank * (size_t)n;
	const float *given[BARE_MOST];

	(void)type, (void)op, (void)comm;
	if (bytes <= BARE_SLOT) {
		bare_exchange(src, bytes);
		bare_gather(given, src, dst, bytes, at);
		bare_sum(dst, given, (size_t)n);
		return 0;
	}
	bare_meet(src, dst);
	for (int r = 0; r < bare.ranks; r++)
		given[r] = (const float *)bare_place_of(r)->src + at;
	bare_sum(dst, given, (size_t)n);
	bare_part();
	return 0;
}

static inline int MPI_Allgather(const void *src, int n, int type, void *dst, int m, int type2, int comm)
{
	size_t bytes = (size_t)n * 4;
	bool slots = bytes <= BARE_SLOT;

	(void)type, (void)m, (void)type2, (void)comm;
	if (src == MPI_IN_PLACE)
		src = (char *)dst + (size_t)bare.rank * bytes;
	if (slots)
		bare_exchange(src, bytes);
	else
		bare_meet(src, dst);
	for (int i = 0; i < bare.ranks; i++) {
		int r = (bare.rank + i) % bare.ranks;
		const void *from = r == bare.rank ? src : slots ? bare_given(r, bytes) : bare_place_of(r)->src;
		char *to = (char *)dst + (size_t)r * bytes;

		if (from != to)
			memcpy(to, from, bytes);
	}
	if (!slots)
		bare_part();
	return 0;
}

static inline int MPI_Alltoall(const void *src, int n, int type, void *dst, int m, int type2, int comm)
{
	size_t bytes = (size_t)n * 4, all = bytes * (size_t)bare.ranks, at = bytes * (size_t)bare.rank;
	bool slots = all <= BARE_SLOT;

	(void)type, (void)m, (void)type2, (void)comm;
	if (slots)
		bare_exchange(src, all);
	else
		bare_meet(src, dst);
	for (int i = 0; i < bare.ranks; i++) {
		int r = (bare.rank + i) % bare.ranks;
		const char *from = r == bare.rank ? src : slots ? bare_given(r, all) : bare_place_of(r)->src;

		memcpy((char *)dst + (size_t)r * bytes, from + at, bytes);
	}
	if (!slots)
		bare_part();
	return 0;
}

// The root waits only for ranks that still read the slot, or that must read its buffer.
static inline int MPI_Bcast(void *buf, int n, int type, int root, int comm)
{
	size_t bytes = (size_t)n * 4;
	struct bare_place own = {buf, NULL};

	(void)type, (void)comm;
	++bare.seq;
	if (bare.rank != root) {
		bare_await(&bare_slot_of(root)->seq, bare.seq);
		memcpy(buf, bytes <= BARE_SLOT ? bare_given(root, bytes) : bare_place_of(root)->src, bytes);
		atomic_store_explicit(&bare_slot_of(bare.rank)->seq, bare.seq, memory_order_release);
		return 0;
	}
	for (int r = 0; r < bare.ranks; r++)
		if (r != root)
			bare_await(&bare_slot_of(r)->seq, bare.seq > 2 ? bare.seq - 2 : 0);
	if (bytes <= BARE_SLOT)
		return bare_post(buf, bytes), 0;
	bare_post(&own, sizeof own);
	for (int r = 0; r < bare.ranks; r++)
		bare_await(&bare_slot_of(r)->seq, bare.seq);
	return 0;
}

#endif
