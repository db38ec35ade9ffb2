// The content of buffers: endless periodic runs of floats. The period is a prime, so blocks, chunks
// and pages of a power of two start at different phases. The values are small integers, so sums are
// exact in any order.
#ifndef SYMGRAD_BENCH_PATTERN_H
#define SYMGRAD_BENCH_PATTERN_H

#include <stdint.h>
#include <string.h>

enum {
	PERIOD = 1021,
	TURN = 17 // shift between iterations, so that the previous result is wrong for the next one
};

struct pattern {
	float twice[2 * PERIOD]; // two periods, so that a whole one starts at every phase
};

static inline float input_value(int rank, int i)
{
	uint32_t h = (uint32_t)rank * 2654435761u + (uint32_t)i * 2246822519u;

	h = (h ^ h >> 15) * 3266489917u;
	return (float)((h ^ h >> 16) % 1000);
}

// The input of a rank.
static inline void pattern_of_rank(struct pattern *p, int rank)
{
	for (int i = 0; i < 2 * PERIOD; i++)
		p->twice[i] = input_value(rank, i % PERIOD);
}

// The sum of the inputs of n ranks.
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

// Counts the elements that differ from the pattern at phase. It reads all of them.
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
