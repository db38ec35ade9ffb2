package ucx

// The structs of ucp.h and ucp_def.h that the calls take. UCX 1.13.1 and 1.18.1 have the same sizes
// and offsets (openucx/ucx, src/ucp/api, tags v1.13.1 and v1.18.1). A mask says which fields count,
// so that later versions may append fields.

// The version of the API that ucp_init_version is asked for.
const (
	apiMajor = 1
	apiMinor = 13
)

// contextParams is ucp_params_t (ucp.h).
type contextParams struct {
	mask            uint64
	features        uint64
	requestSize     uint64
	requestInit     uintptr
	requestCleanup  uintptr
	tagSenderMask   uint64
	mtWorkersShared int32
	_               int32
	estimatedEPs    uint64
	estimatedPPN    uint64
	name            uintptr
}

// Bits of ucp_params_field and ucp_feature.
const (
	paramFeatures      = 1 << 0
	paramTagSenderMask = 1 << 4
	paramEstimatedEPs  = 1 << 6

	featureTag = 1 << 0
)

// workerParams is ucp_worker_params_t (ucp.h).
type workerParams struct {
	mask        uint64
	threadMode  int32
	_           int32
	cpuMask     [16]uint64 // ucs_cpu_set_t: 1024 bits
	events      uint32
	_           uint32
	userData    uintptr
	eventFD     int32
	_           int32
	flags       uint64
	name        uintptr
	amAlignment uint64
	clientID    uint64
}

// A bit of ucp_worker_params_field, and a value of ucs_thread_mode_t.
const (
	workerThreadMode = 1 << 0

	threadSerialized = 1
)

// sockAddr is ucs_sock_addr_t (ucs/type/thread_mode.h and sock.h).
type sockAddr struct {
	addr   uintptr
	length uint32
	_      uint32
}

// endpointParams is ucp_ep_params_t (ucp_def.h).
type endpointParams struct {
	mask          uint64
	address       uintptr
	errMode       int32
	_             int32
	errHandler    uintptr
	errArg        uintptr
	userData      uintptr
	flags         uint32
	_             uint32
	sockaddr      sockAddr
	connRequest   uintptr
	name          uintptr
	localSockaddr sockAddr
}

// Bits of ucp_ep_params_field, and a value of ucp_err_handling_mode_t.
const (
	endpointAddress = 1 << 0
	endpointErrMode = 1 << 1
	endpointHandler = 1 << 2

	errModePeer = 1
)

// requestParam is ucp_request_param_t (ucp.h).
type requestParam struct {
	mask       uint32
	flags      uint32
	request    uintptr
	cb         uintptr
	datatype   uintptr
	userData   uintptr
	reply      uintptr
	memoryType int32
	_          int32
	recvInfo   uintptr
	memh       uintptr
}

// Bits of ucp_op_attr_t, and of ucp_ep_close_flags_t.
const (
	opFlags          = 1 << 4
	opNoImmediateEnd = 1 << 16

	closeForce = 1 << 0
)

// recvInfo is ucp_tag_recv_info_t (ucp.h).
type recvInfo struct {
	tag    uint64
	length uint64
}

// status is ucs_status_t (ucs/type/status.h), a packed enum: one byte. Only the lowest byte of a
// register that has one counts.
type status int8

// Values of ucs_status_t.
const (
	statusOK           status = 0
	statusInProgress   status = 1
	statusNoMemory     status = -4
	statusInvalidParam status = -5
	statusUnreachable  status = -6
	statusNotImplement status = -8
	statusTruncated    status = -9
	statusCanceled     status = -16
	statusUnsupported  status = -22
	statusReset        status = -25
	statusLast         status = -100
)

// pointerStatus returns the status in a ucs_status_ptr_t, or that it is a request: UCS_PTR_IS_ERR
// and UCS_PTR_STATUS of status.h.
func pointerStatus(p uintptr) (s status, request bool) {
	last := int(statusLast)
	switch {
	case p == 0:
		return statusOK, false
	case p >= uintptr(last):
		return status(p), false
	}
	return statusInProgress, true
}

// local reports whether s is an error of this process, which says nothing about the peer.
func (s status) local() bool {
	switch s {
	case statusNoMemory, statusInvalidParam, statusNotImplement, statusTruncated, statusUnsupported:
		return true
	}
	return s >= 0
}
