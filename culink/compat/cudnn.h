// This header is included before cuDNN's own cudnn.h, so that gorgonia.org/cu/dnn v0.9.6, and with it
// gorgonia under the build tag cuda, compiles with cuDNN 9, the first for CUDA 13. It is used like the
// cuda.h of this folder.
//
// cuDNN 9 removed parts that were deprecated in 8: algorithm descriptors, persistent plans of recurrent
// networks, and preferences. This file defines their types, and functions that only return
// CUDNN_STATUS_NOT_SUPPORTED. With an older cuDNN it does nothing.
//
// Source: NVIDIA, "cuDNN release notes", 9.0.0.
#ifndef SYMGRAD_CULINK_CUDNN_H
#define SYMGRAD_CULINK_CUDNN_H

#include_next <cudnn.h>

#if CUDNN_MAJOR >= 9

typedef struct culink_algorithm_descriptor *cudnnAlgorithmDescriptor_t;
typedef struct culink_algorithm_performance *cudnnAlgorithmPerformance_t;
typedef struct culink_persistent_plan *cudnnPersistentRNNPlan_t;

typedef struct {
	union Algorithm {
		cudnnConvolutionFwdAlgo_t convFwdAlgo;
		cudnnConvolutionBwdFilterAlgo_t convBwdFilterAlgo;
		cudnnConvolutionBwdDataAlgo_t convBwdDataAlgo;
		cudnnRNNAlgo_t RNNAlgo;
		cudnnCTCLossAlgo_t CTCLossAlgo;
	} algo;
} cudnnAlgorithm_t;

typedef enum {
	CUDNN_CONVOLUTION_FWD_NO_WORKSPACE = 0,
	CUDNN_CONVOLUTION_FWD_PREFER_FASTEST = 1,
	CUDNN_CONVOLUTION_FWD_SPECIFY_WORKSPACE_LIMIT = 2
} cudnnConvolutionFwdPreference_t;

typedef enum {
	CUDNN_CONVOLUTION_BWD_FILTER_NO_WORKSPACE = 0,
	CUDNN_CONVOLUTION_BWD_FILTER_PREFER_FASTEST = 1,
	CUDNN_CONVOLUTION_BWD_FILTER_SPECIFY_WORKSPACE_LIMIT = 2
} cudnnConvolutionBwdFilterPreference_t;

typedef enum {
	CUDNN_CONVOLUTION_BWD_DATA_NO_WORKSPACE = 0,
	CUDNN_CONVOLUTION_BWD_DATA_PREFER_FASTEST = 1,
	CUDNN_CONVOLUTION_BWD_DATA_SPECIFY_WORKSPACE_LIMIT = 2
} cudnnConvolutionBwdDataPreference_t;

static inline cudnnStatus_t cudnnCreateAlgorithmDescriptor(cudnnAlgorithmDescriptor_t *descriptor) {
	return CUDNN_STATUS_NOT_SUPPORTED;
}

static inline cudnnStatus_t cudnnSetAlgorithmDescriptor(cudnnAlgorithmDescriptor_t descriptor, cudnnAlgorithm_t algorithm) {
	return CUDNN_STATUS_NOT_SUPPORTED;
}

static inline cudnnStatus_t cudnnDestroyAlgorithmDescriptor(cudnnAlgorithmDescriptor_t descriptor) {
	return CUDNN_STATUS_NOT_SUPPORTED;
}

static inline cudnnStatus_t cudnnCreateAlgorithmPerformance(cudnnAlgorithmPerformance_t *performance, int count) {
	return CUDNN_STATUS_NOT_SUPPORTED;
}

static inline cudnnStatus_t cudnnSetAlgorithmPerformance(cudnnAlgorithmPerformance_t performance,
	cudnnAlgorithmDescriptor_t descriptor, cudnnStatus_t status, float time, size_t memory) {
	return CUDNN_STATUS_NOT_SUPPORTED;
}

static inline cudnnStatus_t cudnnDestroyAlgorithmPerformance(cudnnAlgorithmPerformance_t *performance, int count) {
	return CUDNN_STATUS_NOT_SUPPORTED;
}

static inline cudnnStatus_t cudnnCreatePersistentRNNPlan(cudnnRNNDescriptor_t rnn, const int batch,
	const cudnnDataType_t type, cudnnPersistentRNNPlan_t *plan) {
	return CUDNN_STATUS_NOT_SUPPORTED;
}

static inline cudnnStatus_t cudnnSetPersistentRNNPlan(cudnnRNNDescriptor_t rnn, cudnnPersistentRNNPlan_t plan) {
	return CUDNN_STATUS_NOT_SUPPORTED;
}

static inline cudnnStatus_t cudnnDestroyPersistentRNNPlan(cudnnPersistentRNNPlan_t plan) {
	return CUDNN_STATUS_NOT_SUPPORTED;
}

static inline cudnnStatus_t cudnnSetRNNMatrixMathType(cudnnRNNDescriptor_t rnn, cudnnMathType_t type) {
	return CUDNN_STATUS_NOT_SUPPORTED;
}

static inline cudnnStatus_t cudnnGetRNNLinLayerMatrixParams(cudnnHandle_t handle, const cudnnRNNDescriptor_t rnn,
	const int layer, const cudnnTensorDescriptor_t x, const cudnnFilterDescriptor_t weights, const void *w, const int id,
	cudnnFilterDescriptor_t descriptor, void **matrix) {
	return CUDNN_STATUS_NOT_SUPPORTED;
}

static inline cudnnStatus_t cudnnGetRNNLinLayerBiasParams(cudnnHandle_t handle, const cudnnRNNDescriptor_t rnn,
	const int layer, const cudnnTensorDescriptor_t x, const cudnnFilterDescriptor_t weights, const void *w, const int id,
	cudnnFilterDescriptor_t descriptor, void **bias) {
	return CUDNN_STATUS_NOT_SUPPORTED;
}

#endif
#endif
