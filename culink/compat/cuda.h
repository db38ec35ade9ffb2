// This header is included before CUDA's own cuda.h, so that gorgonia.org/cu v0.9.6, which was written
// for CUDA 11, compiles with CUDA 13:
//
//	CGO_CFLAGS="-I<folder of this file> -I<folder of CUDA's headers>" go build -tags cuda ...
//
// CUDA 13 gave five functions that cu calls the parameters of later versions. This file defines each
// with its earlier parameters and calls the new one. With an older CUDA it does nothing. CUDA 13 did
// not change the other functions that cu calls.
//
// Source: NVIDIA, "CUDA API Changes from 12.x to 13.x".
#ifndef SYMGRAD_CULINK_CUDA_H
#define SYMGRAD_CULINK_CUDA_H

#include_next <cuda.h>

#if CUDA_VERSION >= 13000

#include <string.h>

// culink_location returns CUDA 13's location of a device, or of the host for CU_DEVICE_CPU.
static inline CUmemLocation culink_location(CUdevice device) {
	CUmemLocation l;
	memset(&l, 0, sizeof l);
	if (device == CU_DEVICE_CPU) {
		l.type = CU_MEM_LOCATION_TYPE_HOST;
	} else {
		l.type = CU_MEM_LOCATION_TYPE_DEVICE;
		l.id = device;
	}
	return l;
}

static inline CUresult culink_cuCtxCreate(CUcontext *context, unsigned int flags, CUdevice device) {
	return cuCtxCreate(context, NULL, flags, device);
}

static inline CUresult culink_cuMemAdvise(CUdeviceptr p, size_t bytes, CUmem_advise advice, CUdevice device) {
	return cuMemAdvise(p, bytes, advice, culink_location(device));
}

static inline CUresult culink_cuMemPrefetchAsync(CUdeviceptr p, size_t bytes, CUdevice device, CUstream stream) {
	return cuMemPrefetchAsync(p, bytes, culink_location(device), 0, stream);
}

static inline CUresult culink_cuGraphAddDependencies(CUgraph graph, const CUgraphNode *from, const CUgraphNode *to, size_t count) {
	return cuGraphAddDependencies(graph, from, to, NULL, count);
}

static inline CUresult culink_cuGraphGetEdges(CUgraph graph, CUgraphNode *from, CUgraphNode *to, size_t *count) {
	return cuGraphGetEdges(graph, from, to, NULL, count);
}

#undef cuCtxCreate
#undef cuMemAdvise
#undef cuMemPrefetchAsync
#undef cuGraphAddDependencies
#undef cuGraphGetEdges
#define cuCtxCreate culink_cuCtxCreate
#define cuMemAdvise culink_cuMemAdvise
#define cuMemPrefetchAsync culink_cuMemPrefetchAsync
#define cuGraphAddDependencies culink_cuGraphAddDependencies
#define cuGraphGetEdges culink_cuGraphGetEdges

#endif
#endif
