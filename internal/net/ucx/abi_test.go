package ucx

import (
	"testing"
	"unsafe"
)

// The values are those that gcc 12 printed for the headers of UCX 1.13.1 and of 1.18.1 on x86-64.
func TestStructsHaveTheLayoutOfUCX(t *testing.T) {
	var (
		c contextParams
		w workerParams
		e endpointParams
		r requestParam
		i recvInfo
		s sockAddr
	)
	for _, f := range []struct {
		name      string
		got, want uintptr
	}{
		{"ucp_params_t", unsafe.Sizeof(c), 80},
		{"ucp_params_t.features", unsafe.Offsetof(c.features), 8},
		{"ucp_params_t.request_size", unsafe.Offsetof(c.requestSize), 16},
		{"ucp_params_t.tag_sender_mask", unsafe.Offsetof(c.tagSenderMask), 40},
		{"ucp_params_t.mt_workers_shared", unsafe.Offsetof(c.mtWorkersShared), 48},
		{"ucp_params_t.estimated_num_eps", unsafe.Offsetof(c.estimatedEPs), 56},
		{"ucp_params_t.estimated_num_ppn", unsafe.Offsetof(c.estimatedPPN), 64},
		{"ucp_params_t.name", unsafe.Offsetof(c.name), 72},

		{"ucp_worker_params_t", unsafe.Sizeof(w), 200},
		{"ucp_worker_params_t.thread_mode", unsafe.Offsetof(w.threadMode), 8},
		{"ucp_worker_params_t.cpu_mask", unsafe.Offsetof(w.cpuMask), 16},
		{"ucp_worker_params_t.events", unsafe.Offsetof(w.events), 144},
		{"ucp_worker_params_t.user_data", unsafe.Offsetof(w.userData), 152},
		{"ucp_worker_params_t.client_id", unsafe.Offsetof(w.clientID), 192},

		{"ucp_ep_params_t", unsafe.Sizeof(e), 104},
		{"ucp_ep_params_t.address", unsafe.Offsetof(e.address), 8},
		{"ucp_ep_params_t.err_mode", unsafe.Offsetof(e.errMode), 16},
		{"ucp_ep_params_t.err_handler", unsafe.Offsetof(e.errHandler), 24},
		{"ucp_ep_params_t.err_handler.arg", unsafe.Offsetof(e.errArg), 32},
		{"ucp_ep_params_t.user_data", unsafe.Offsetof(e.userData), 40},
		{"ucp_ep_params_t.flags", unsafe.Offsetof(e.flags), 48},
		{"ucp_ep_params_t.sockaddr", unsafe.Offsetof(e.sockaddr), 56},
		{"ucp_ep_params_t.conn_request", unsafe.Offsetof(e.connRequest), 72},
		{"ucp_ep_params_t.name", unsafe.Offsetof(e.name), 80},
		{"ucp_ep_params_t.local_sockaddr", unsafe.Offsetof(e.localSockaddr), 88},

		{"ucp_request_param_t", unsafe.Sizeof(r), 72},
		{"ucp_request_param_t.flags", unsafe.Offsetof(r.flags), 4},
		{"ucp_request_param_t.request", unsafe.Offsetof(r.request), 8},
		{"ucp_request_param_t.cb", unsafe.Offsetof(r.cb), 16},
		{"ucp_request_param_t.datatype", unsafe.Offsetof(r.datatype), 24},
		{"ucp_request_param_t.user_data", unsafe.Offsetof(r.userData), 32},
		{"ucp_request_param_t.reply_buffer", unsafe.Offsetof(r.reply), 40},
		{"ucp_request_param_t.memory_type", unsafe.Offsetof(r.memoryType), 48},
		{"ucp_request_param_t.recv_info", unsafe.Offsetof(r.recvInfo), 56},
		{"ucp_request_param_t.memh", unsafe.Offsetof(r.memh), 64},

		{"ucp_tag_recv_info_t", unsafe.Sizeof(i), 16},
		{"ucp_tag_recv_info_t.length", unsafe.Offsetof(i.length), 8},
		{"ucs_sock_addr_t", unsafe.Sizeof(s), 16},
		{"ucs_status_t", unsafe.Sizeof(statusOK), 1},
	} {
		if f.got != f.want {
			t.Errorf("%s: %d, want %d", f.name, f.got, f.want)
		}
	}
}

func TestStatusOfAPointer(t *testing.T) {
	last, reset := int64(-100), int64(-25)
	for _, c := range []struct {
		pointer uintptr
		want    status
		request bool
	}{
		{0, statusOK, false},
		{uintptr(reset), statusReset, false},
		{uintptr(last), statusLast, false},
		{uintptr(last) - 1, statusInProgress, true},
		{0x7f0012345600, statusInProgress, true},
	} {
		if s, request := pointerStatus(c.pointer); s != c.want || request != c.request {
			t.Errorf("pointer %#x: status %d, request %t, want %d, %t", c.pointer, s, request, c.want, c.request)
		}
	}
	if statusReset.local() || !statusTruncated.local() || statusUnreachable.local() {
		t.Error("a status is taken for the wrong side")
	}
}
