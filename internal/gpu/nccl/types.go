package nccl

import (
	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/tensor"
)

// idBytes is the size of an ncclUniqueId.
const idBytes = 128

// UniqueID is an ncclUniqueId: the meeting point of a communicator's ranks. It is used once.
type UniqueID [idBytes]byte

// ncclDataType_t.
const (
	typeI8   = 0
	typeU8   = 1
	typeI32  = 2
	typeU32  = 3
	typeI64  = 4
	typeU64  = 5
	typeF16  = 6
	typeF32  = 7
	typeF64  = 8
	typeBF16 = 9
)

// ncclRedOp_t.
const (
	opSum  = 0
	opProd = 1
	opMax  = 2
	opMin  = 3
	opAvg  = 4
)

// Flags and residences of nccl.h.
const (
	scalarDevice        = 0
	scalarHost          = 1
	windowSymmetric     = 1 // NCCL_WIN_COLL_SYMMETRIC
	splitNoColor        = -1
	windowAlignment     = 4096 // NCCL_WIN_REQUIRED_ALIGNMENT
	undefInt            = -1 << 31
	configMagic         = 0xcafebeef
	configVersion       = 23007
	resultSuccess       = 0
	resultSystemError   = 2
	resultInvalidArg    = 4
	resultInvalidUsage  = 5
	resultInProgress    = 7
	resultTimeout       = 8
	placeholderCustomOp = -1
)

// dtypes has the ncclDataType_t of a transfer by tensor.DType. NCCL has no 16-bit integers: they
// are copied as halves, bit for bit.
var dtypes = [...]int32{
	tensor.F16:  typeF16,
	tensor.BF16: typeBF16,
	tensor.F32:  typeF32,
	tensor.F64:  typeF64,
	tensor.I8:   typeI8,
	tensor.I16:  typeF16,
	tensor.I32:  typeI32,
	tensor.I64:  typeI64,
	tensor.U8:   typeU8,
	tensor.U16:  typeF16,
	tensor.U32:  typeU32,
	tensor.U64:  typeU64,
}

// redOps has the ncclRedOp_t by dist.RedKind; a premulsum's is made for its scalar.
var redOps = [...]int32{
	dist.RedSum:       opSum,
	dist.RedProd:      opProd,
	dist.RedMin:       opMin,
	dist.RedMax:       opMax,
	dist.RedAvg:       opAvg,
	dist.RedPreMulSum: placeholderCustomOp,
}

// config is ncclConfig_t of NCCL 2.30.7. The structure only ever grew at its end. An older library
// reads its own head of it, since it copies min(size, its own size) bytes, and resets fields newer
// than version (init.cc, parseCommConfig).
type config struct {
	size               uint64
	magic              uint32
	version            uint32
	blocking           int32
	cgaClusterSize     int32
	minCTAs            int32
	maxCTAs            int32
	netName            uintptr
	splitShare         int32
	trafficClass       int32
	commName           uintptr
	collnetEnable      int32
	ctaPolicy          int32
	shrinkShare        int32
	nvlsCTAs           int32
	channelsPerNetPeer int32
	nvlinkCentricSched int32
	graphUsageMode     int32
	numRmaCtx          int32
	maxP2PPeers        int32
	graphStreamOrder   int32
}

// windowVidmem is the head of ncclWindow_vidmem on the device, which a window of NCCL 2.28 points
// to. It is the same up to 2.30.7 (nccl_device/impl/core__types.h), where functions return the same
// values.
type windowVidmem struct {
	host     uintptr
	flatBase uint64 // first byte of the window on rank 0 of the ranks that share memory
	lsaRank  int32  // this rank among the ranks that share memory
	rank     int32  // this rank in the communicator
	stride4G uint32 // bytes between the parts of successive ranks, in units of 4 GiB
	mcOffset uint32
}
