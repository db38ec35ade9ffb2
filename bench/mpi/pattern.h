// What buffers hold: endless periodic runs of floats. The period is a prime, so that no block, chunk or page of a power of
// two begins where another does; the values are small whole numbers, so that sums are exact in any order.
#ifndef SYMGRAD_BENCH_PATTERN_H
#define SYMGRAD_BENCH_PATTERN_H

#include <stdint.h>
#include <string.h>

enum {
	PERIOD = 1021,
	TURN = 17 // from one iteration to the next, so that none can pass with the last one's result
};

struct pattern {
	float twice[2 * PERIOD]; // two periods, so that a whole one begins at every phase
};

static inline float input_value(int rank, int i)
{
	uint32_t h = (uint32_t)rank * 2654435761u + (uint32_t)i * 2246822519u;

	h = (h ^ h >> 15) * 3266489917u;
	return (float)((h ^ h >> 16) % 1000);
}

// What rank puts in.
static inline void pattern_of_rank(struct pattern *p, int rank)
{
	for (int i = 0; i < 2 * PERIOD; i++)
		p->twice[i] = input_value(rank, i % PERIOD);
}

// The sum of what n ranks put in.
static inline void pattern_of_sum(struct pattern *p, int n)
{
	memset(p, 0, sizeof *p);
	for (int i = 0; i < 2 * PERIOD; i++)
		for (int rank = 0; rank < n; rank++)
			p->twice[i] += input_value(rank, i % PERIOD);
}

static inline void pattern_fill(const struct pattern *p, float *dst, size_t count, size_t phase)
{
	const float *from = p->twice + phase % PERIOD;

	while (count > 0) {
		size_t n = count < PERIOD ? count : PERIOD;

		memcpy(dst, from, n * sizeof *dst);
		dst += n;
		count -= n;
	}
}

// How many elements are not those of the pattern from phase on. It reads all of them.
static inline int64_t pattern_wrong(const struct pattern *p, const float *got, size_t count, size_t phase)
{
	const float *want = p->twice + phase % PERIOD;
	int64_t wrong = 0;

	while (count > 0) {
		size_t n = count < PERIOD ? count : PERIOD;

		if (memcmp(got, want, n * sizeof *got) != 0)
			for (size_t i = 0; i < n; i++)
				wrong += memcmp(&got[i], &want[i], sizeof *got) != 0;
		got += n;
		count -= n;
	}
	return wrong;
}

#endif
