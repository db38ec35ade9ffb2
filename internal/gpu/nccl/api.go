package nccl

import "github.com/symgrad/symgrad/internal/dl"

// front is bound before the rest, so that a library that is too old gets that error.
type front struct {
	version func(out *int32) int32 `dl:"ncclGetVersion"`
}

// table has the functions of NCCL that this package calls. Handles and pointers are machine words.
// Functions return ncclResult_t unless noted.
type table struct {
	errorString func(code int32) string              `dl:"ncclGetErrorString"`
	lastError   func(comm uintptr) string            `dl:"ncclGetLastError,optional,since=2.13.4"`
	asyncError  func(comm uintptr, out *int32) int32 `dl:"ncclCommGetAsyncError"`
	count       func(comm uintptr, out *int32) int32 `dl:"ncclCommCount"`
	userRank    func(comm uintptr, out *int32) int32 `dl:"ncclCommUserRank"`
	uniqueID    func(out *[idBytes]byte) int32       `dl:"ncclGetUniqueId"`

	// (comm*, nranks, rank, config*, then the 128 bytes of the id by value): see Comm.initRank
	initConfig   dl.Proc `dl:"ncclCommInitRankConfig"`
	initScalable dl.Proc `dl:"ncclCommInitRankScalable,optional,since=2.23.4"` // (comm*, nranks, rank, nId, ids*, config*)
	finalize     dl.Proc `dl:"ncclCommFinalize"`                               // (comm)
	destroy      dl.Proc `dl:"ncclCommDestroy"`                                // (comm)
	abort        dl.Proc `dl:"ncclCommAbort"`                                  // (comm)
	split        dl.Proc `dl:"ncclCommSplit,optional,since=2.18.1"`            // (comm, color, key, comm*, config*)

	memAlloc    dl.Proc `dl:"ncclMemAlloc,optional,since=2.19.1"`             // (void**, bytes)
	memFree     dl.Proc `dl:"ncclMemFree,optional,since=2.19.1"`              // (void*)
	register    dl.Proc `dl:"ncclCommWindowRegister,optional,since=2.27.3"`   // (comm, addr, bytes, win*, flags)
	deregister  dl.Proc `dl:"ncclCommWindowDeregister,optional,since=2.27.3"` // (comm, win)
	peerPointer dl.Proc `dl:"ncclGetPeerDevicePointer,optional,since=2.29.2"` // (win, offset, peer, void**)

	groupStart dl.Proc `dl:"ncclGroupStart"` // ()
	groupEnd   dl.Proc `dl:"ncclGroupEnd"`   // ()

	premulsum  dl.Proc `dl:"ncclRedOpCreatePreMulSum"` // (op*, scalar*, dtype, residence, comm)
	dropRedOp  dl.Proc `dl:"ncclRedOpDestroy"`         // (op, comm)
	allReduce  dl.Proc `dl:"ncclAllReduce"`            // (src, dst, n, dtype, op, comm, stream)
	reduce     dl.Proc `dl:"ncclReduce"`               // (src, dst, n, dtype, op, root, comm, stream)
	broadcast  dl.Proc `dl:"ncclBroadcast"`            // (src, dst, n, dtype, root, comm, stream)
	allGather  dl.Proc `dl:"ncclAllGather"`            // (src, dst, n, dtype, comm, stream)
	redScatter dl.Proc `dl:"ncclReduceScatter"`        // (src, dst, n, dtype, op, comm, stream)
	send       dl.Proc `dl:"ncclSend"`                 // (src, n, dtype, peer, comm, stream)
	recv       dl.Proc `dl:"ncclRecv"`                 // (dst, n, dtype, peer, comm, stream)

	// If these are missing, sends and receives in a group replace them, as inside NCCL 2.28.
	allToAll dl.Proc `dl:"ncclAlltoAll,optional,since=2.28.3"` // (src, dst, n, dtype, comm, stream)
	gather   dl.Proc `dl:"ncclGather,optional,since=2.28.3"`   // (src, dst, n, dtype, root, comm, stream)
	scatter  dl.Proc `dl:"ncclScatter,optional,since=2.28.3"`  // (src, dst, n, dtype, root, comm, stream)
}
