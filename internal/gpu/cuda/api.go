package cuda

import (
	"unsafe"

	"github.com/symgrad/symgrad/internal/dl"
)

// success is CUDA_SUCCESS and NVRTC_SUCCESS.
const success = 0

// api holds the functions of libcuda.so.1 that this package calls. Rare and blocking calls are
// typed; those of the hot path take machine words. cuda.h maps the plain name of a function to its
// name with a suffix _v2.
type api struct {
	init          func(flags uint32) int32                                        `dl:"cuInit"`
	deviceCount   func(out *int32) int32                                          `dl:"cuDeviceGetCount"`
	deviceGet     func(out *int32, ordinal int32) int32                           `dl:"cuDeviceGet"`
	deviceName    func(out *byte, bytes int32, dev int32) int32                   `dl:"cuDeviceGetName"`
	deviceUUID    func(out *uuid, dev int32) int32                                `dl:"cuDeviceGetUuid_v2"`
	devicePCI     func(out *byte, bytes int32, dev int32) int32                   `dl:"cuDeviceGetPCIBusId"`
	deviceAttr    func(out *int32, attr int32, dev int32) int32                   `dl:"cuDeviceGetAttribute"`
	canAccess     func(out *int32, dev, peer int32) int32                         `dl:"cuDeviceCanAccessPeer"`
	peerAttr      func(out *int32, attr int32, dev, peer int32) int32             `dl:"cuDeviceGetP2PAttribute"`
	retain        func(out *uintptr, dev int32) int32                             `dl:"cuDevicePrimaryCtxRetain"`
	release       func(dev int32) int32                                           `dl:"cuDevicePrimaryCtxRelease_v2"`
	ctxPush       dl.Proc                                                         `dl:"cuCtxPushCurrent_v2"`
	ctxPop        dl.Proc                                                         `dl:"cuCtxPopCurrent_v2"`
	ctxSync       func() int32                                                    `dl:"cuCtxSynchronize"`
	ctxRecord     func(ctx, event uintptr) int32                                  `dl:"cuCtxRecordEvent,optional,since=12.5"`
	priorityRange func(least, greatest *int32) int32                              `dl:"cuCtxGetStreamPriorityRange"`
	enablePeer    func(ctx uintptr, flags uint32) int32                           `dl:"cuCtxEnablePeerAccess"`
	memInfo       func(free, total *uint64) int32                                 `dl:"cuMemGetInfo_v2"`
	memAlloc      func(out *uintptr, bytes uint64) int32                          `dl:"cuMemAlloc_v2"`
	memFree       func(p uintptr) int32                                           `dl:"cuMemFree_v2"`
	memRange      func(base *uintptr, bytes *uint64, p uintptr) int32             `dl:"cuMemGetAddressRange_v2"`
	hostAlloc     func(out *uintptr, bytes uint64, flags uint32) int32            `dl:"cuMemHostAlloc"`
	hostFree      func(p uintptr) int32                                           `dl:"cuMemFreeHost"`
	hostDevice    func(out *uintptr, p uintptr, flags uint32) int32               `dl:"cuMemHostGetDevicePointer_v2"`
	ipcGet        func(out *ipcHandle, p uintptr) int32                           `dl:"cuIpcGetMemHandle"`
	ipcOpen       dl.Proc                                                         `dl:"cuIpcOpenMemHandle_v2"`
	ipcClose      func(p uintptr) int32                                           `dl:"cuIpcCloseMemHandle"`
	streamCreate  func(out *uintptr, flags uint32, priority int32) int32          `dl:"cuStreamCreateWithPriority"`
	streamDestroy func(s uintptr) int32                                           `dl:"cuStreamDestroy_v2"`
	streamPrio    func(s uintptr, out *int32) int32                               `dl:"cuStreamGetPriority"`
	streamSync    dl.Proc                                                         `dl:"cuStreamSynchronize"`
	streamQuery   dl.Proc                                                         `dl:"cuStreamQuery"`
	streamWait    dl.Proc                                                         `dl:"cuStreamWaitEvent"`
	copyAsync     dl.Proc                                                         `dl:"cuMemcpyAsync"`
	copyToAsync   dl.Proc                                                         `dl:"cuMemcpyHtoDAsync_v2"`
	copyFromAsync dl.Proc                                                         `dl:"cuMemcpyDtoHAsync_v2"`
	fillAsync     dl.Proc                                                         `dl:"cuMemsetD8Async"`
	write64       dl.Proc                                                         `dl:"cuStreamWriteValue64_v2"`
	wait64        dl.Proc                                                         `dl:"cuStreamWaitValue64_v2"`
	eventCreate   func(out *uintptr, flags uint32) int32                          `dl:"cuEventCreate"`
	eventDestroy  func(e uintptr) int32                                           `dl:"cuEventDestroy_v2"`
	eventRecord   dl.Proc                                                         `dl:"cuEventRecord"`
	eventQuery    dl.Proc                                                         `dl:"cuEventQuery"`
	eventSync     dl.Proc                                                         `dl:"cuEventSynchronize"`
	elapsed       func(ms *float32, start, end uintptr) int32                     `dl:"cuEventElapsedTime"`
	elapsed2      func(ms *float32, start, end uintptr) int32                     `dl:"cuEventElapsedTime_v2,optional,since=12.8"`
	moduleLoad    func(out *uintptr, image *byte) int32                           `dl:"cuModuleLoadData"`
	moduleUnload  func(m uintptr) int32                                           `dl:"cuModuleUnload"`
	moduleFunc    func(out *uintptr, m uintptr, name string) int32                `dl:"cuModuleGetFunction"`
	moduleGlobal  func(p *uintptr, bytes *uint64, m uintptr, name string) int32   `dl:"cuModuleGetGlobal_v2"`
	funcLoad      func(f uintptr) int32                                           `dl:"cuFuncLoad,optional,since=12.4"`
	funcParam     func(f uintptr, i uint64, offset, bytes *uint64) int32          `dl:"cuFuncGetParamInfo,optional,since=12.4"`
	funcAttr      func(out *int32, attr int32, f uintptr) int32                   `dl:"cuFuncGetAttribute"`
	funcSet       func(f uintptr, attr, value int32) int32                        `dl:"cuFuncSetAttribute"`
	occupancy     func(out *int32, f uintptr, threads int32, shared uint64) int32 `dl:"cuOccupancyMaxActiveBlocksPerMultiprocessor"`
	launch        dl.Proc                                                         `dl:"cuLaunchKernel"`
	launchCoop    dl.Proc                                                         `dl:"cuLaunchCooperativeKernel"`
	launchEx      dl.Proc                                                         `dl:"cuLaunchKernelEx"`
	captureBegin  func(s uintptr, mode int32) int32                               `dl:"cuStreamBeginCapture_v2"`
	captureEnd    func(s uintptr, graph *uintptr) int32                           `dl:"cuStreamEndCapture"`
	capturing     func(s uintptr, status *int32) int32                            `dl:"cuStreamIsCapturing"`
	captureInfo   captureInfo                                                     `dl:"cuStreamGetCaptureInfo_v2"`
	captureAlter  captureAlter                                                    `dl:"cuStreamUpdateCaptureDependencies_v2,optional,since=12.3"`
	graphCreate   func(out *uintptr, flags uint32) int32                          `dl:"cuGraphCreate"`
	graphKernel   graphKernel                                                     `dl:"cuGraphAddKernelNode_v2"`
	graphSet      func(exec, node uintptr, p *kernelNode) int32                   `dl:"cuGraphExecKernelNodeSetParams_v2"`
	nodeType      func(node uintptr, kind *int32) int32                           `dl:"cuGraphNodeGetType"`
	graphNodes    func(graph, nodes uintptr, n *uint64) int32                     `dl:"cuGraphGetNodes"`
	graphInst     func(out *uintptr, graph uintptr, flags uint64) int32           `dl:"cuGraphInstantiateWithFlags"`
	graphDestroy  func(graph uintptr) int32                                       `dl:"cuGraphDestroy"`
	graphLaunch   dl.Proc                                                         `dl:"cuGraphLaunch"`
	graphUpload   func(exec, stream uintptr) int32                                `dl:"cuGraphUpload"`
	execDestroy   func(exec uintptr) int32                                        `dl:"cuGraphExecDestroy"`
}

// front holds the functions for the version and for errors. They are bound first, so that an old
// driver is reported as such.
type front struct {
	version     func(out *int32) int32                      `dl:"cuDriverGetVersion"`
	errorName   func(code int32, out *unsafe.Pointer) int32 `dl:"cuGetErrorName"`
	errorString func(code int32, out *unsafe.Pointer) int32 `dl:"cuGetErrorString"`
}

// Structs of cuda.h, by value or by address.
type (
	uuid      [16]byte // CUuuid
	ipcHandle [64]byte // CUipcMemHandle
	edgeData  [8]byte  // CUgraphEdgeData: the ports of both ends, and a kind

	launchConfig struct { // CUlaunchConfig
		grid, block [3]uint32
		shared      uint32
		stream      uintptr
		attributes  uintptr // of CUlaunchAttribute
		count       uint32
	}
	launchAttribute struct { // CUlaunchAttribute: the value is a union
		id    uint32
		_     uint32
		value [16]uint32
	}
	kernelNode struct { // CUDA_KERNEL_NODE_PARAMS_v2
		function        uintptr
		grid, block     [3]uint32
		shared          uint32
		params, extra   uintptr
		kernel, context uintptr // zero: the function and the current context
	}
)

// Functions of many parameters.
type (
	captureInfo  = func(s uintptr, status *int32, id *uint64, graph *uintptr, nodes *unsafe.Pointer, n *uint64) int32
	graphKernel  = func(node *uintptr, graph uintptr, after *uintptr, n uint64, p *kernelNode) int32
	captureAlter = func(s uintptr, nodes *uintptr, edges *edgeData, n uint64, flags uint32) int32
)

// Constants of cuda.h.
const (
	codeInvalidValue   = 1   // CUDA_ERROR_INVALID_VALUE
	codeOutOfMemory    = 2   // CUDA_ERROR_OUT_OF_MEMORY
	codeStub           = 34  // CUDA_ERROR_STUB_LIBRARY
	codeNoDevice       = 100 // CUDA_ERROR_NO_DEVICE
	codeInvalidContext = 201 // CUDA_ERROR_INVALID_CONTEXT
	codeInvalidHandle  = 400 // CUDA_ERROR_INVALID_HANDLE
	codeNotReady       = 600 // CUDA_ERROR_NOT_READY
	codePeerEnabled    = 704 // CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED
	codeNotSupported   = 801 // CUDA_ERROR_NOT_SUPPORTED

	streamNonBlocking = 1 // CU_STREAM_NON_BLOCKING: not joined with the default stream
	eventNoTiming     = 2 // CU_EVENT_DISABLE_TIMING
	hostPortable      = 1 // CU_MEMHOSTALLOC_PORTABLE: pinned for all contexts
	hostMapped        = 2 // CU_MEMHOSTALLOC_DEVICEMAP
	ipcLazyPeer       = 1 // CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS
	waitAtLeast       = 0 // CU_STREAM_WAIT_VALUE_GEQ
	captureRelaxed    = 2 // CU_STREAM_CAPTURE_MODE_RELAXED
	captureNone       = 0 // CU_STREAM_CAPTURE_STATUS_NONE
	captureActive     = 1 // CU_STREAM_CAPTURE_STATUS_ACTIVE
	captureAdd        = 0 // CU_STREAM_ADD_CAPTURE_DEPENDENCIES
	nodeKernel        = 0 // CU_GRAPH_NODE_TYPE_KERNEL
	portBegun         = 2 // CU_GRAPH_KERNEL_NODE_PORT_LAUNCH_ORDER: all blocks of the kernel have started
	attributeEarly    = 6 // CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
	peerAtomics       = 3 // CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED
)
