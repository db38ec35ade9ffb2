package nvshmem

import (
	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/internal/dl"
	"github.com/symgrad/symgrad/tensor"
)

// front holds the functions for the version and status. They are bound first, so that a library
// that is too old is reported as such.
type front struct {
	vendor func(major, minor, patch *int32) `dl:"nvshmemx_vendor_get_version_info"`
	spec   func(major, minor *int32)        `dl:"nvshmem_info_get_version"`
	status func() int32                     `dl:"nvshmemx_init_status"`
}

// table holds functions of one fixed signature each. The headers define nvshmem_init and its
// variants inline, so the library exports only their nvshmemx_hostlib_init_attr.
type table struct {
	uniqueID dl.Proc           `dl:"nvshmemx_get_uniqueid"`                           // int (uniqueid*)
	setID    dl.Proc           `dl:"nvshmemx_set_attr_uniqueid_args"`                 // int (rank, ranks, uniqueid*, attr*)
	start    dl.Proc           `dl:"nvshmemx_hostlib_init_attr"`                      // int (flags, attr*)
	finalize func()            `dl:"nvshmemx_hostlib_finalize"`                       //
	myPE     func() int32      `dl:"nvshmem_my_pe"`                                   //
	nPEs     func() int32      `dl:"nvshmem_n_pes"`                                   //
	teamPE   func(int32) int32 `dl:"nvshmem_team_my_pe"`                              //
	teamPEs  func(int32) int32 `dl:"nvshmem_team_n_pes"`                              //
	align    dl.Proc           `dl:"nvshmem_align"`                                   // void* (alignment, size)
	free     dl.Proc           `dl:"nvshmem_free"`                                    // void (void*)
	pointer  dl.Proc           `dl:"nvshmem_ptr"`                                     // void* (const void*, pe)
	split    dl.Proc           `dl:"nvshmem_team_split_strided"`                      // int (parent, start, stride, size, config*, mask, team*)
	teamID   dl.Proc           `dl:"nvshmemx_team_get_uniqueid,optional,since=3.3.9"` // int (u64*)
	makeTeam dl.Proc           `dl:"nvshmemx_team_init,optional,since=3.3.9"`         // int (team*, config*, mask, npes, index)

	put          dl.Proc `dl:"nvshmemx_putmem_on_stream"`            // void (dst, src, bytes, pe, stream)
	putNBI       dl.Proc `dl:"nvshmemx_putmem_nbi_on_stream"`        // the same
	get          dl.Proc `dl:"nvshmemx_getmem_on_stream"`            // the same
	getNBI       dl.Proc `dl:"nvshmemx_getmem_nbi_on_stream"`        // the same
	putSignal    dl.Proc `dl:"nvshmemx_putmem_signal_on_stream"`     // void (dst, src, bytes, sig, value, op, pe, stream)
	putSignalNBI dl.Proc `dl:"nvshmemx_putmem_signal_nbi_on_stream"` // the same
	signal       dl.Proc `dl:"nvshmemx_signal_op_on_stream"`         // void (sig, value, op, pe, stream)
	wait         dl.Proc `dl:"nvshmemx_signal_wait_until_on_stream"` // void (sig, cmp, value, stream)
	quiet        dl.Proc `dl:"nvshmemx_quiet_on_stream"`             // void (stream)
	barrierAll   dl.Proc `dl:"nvshmemx_barrier_all_on_stream"`       // void (stream)
	syncAll      dl.Proc `dl:"nvshmemx_sync_all_on_stream"`          // void (stream)
	barrier      dl.Proc `dl:"nvshmemx_barrier_on_stream"`           // int (team, stream)
	sync         dl.Proc `dl:"nvshmemx_team_sync_on_stream"`         // int (team, stream)
	collect      dl.Proc `dl:"nvshmemx_fcollectmem_on_stream"`       // int (team, dst, src, bytes of one rank, stream)
	exchange     dl.Proc `dl:"nvshmemx_alltoallmem_on_stream"`       // int (team, dst, src, bytes for one rank, stream)
	broadcast    dl.Proc `dl:"nvshmemx_broadcastmem_on_stream"`      // int (team, dst, src, bytes, root, stream)

	moduleInit dl.Proc `dl:"nvshmemx_cumodule_init,optional,since=3.0.6"`     // int (CUmodule)
	moduleEnd  dl.Proc `dl:"nvshmemx_cumodule_finalize,optional,since=3.0.6"` // int (CUmodule)
}

// reductions holds reduce and reducescatter for every dtype and reduction of the library: int
// (team, dst, src, elements, stream). reduce counts all elements, reducescatter those of one rank.
type reductions struct {
	reduce  [tensor.U64 + 1][dist.RedXor + 1]dl.Proc
	scatter [tensor.U64 + 1][dist.RedXor + 1]dl.Proc
}

// typeName returns the library's name of an element type; "" for none.
func typeName(dt tensor.DType) string {
	switch dt {
	case tensor.F16:
		return "half"
	case tensor.BF16:
		return "bfloat16"
	case tensor.F32:
		return "float"
	case tensor.F64:
		return "double"
	case tensor.I8:
		return "int8"
	case tensor.I16:
		return "int16"
	case tensor.I32:
		return "int32"
	case tensor.I64:
		return "int64"
	case tensor.U8:
		return "uint8"
	case tensor.U16:
		return "uint16"
	case tensor.U32:
		return "uint32"
	case tensor.U64:
		return "uint64"
	}
	return ""
}

// opName returns the library's name of a reduction; "" for none.
func opName(red dist.RedKind) string {
	switch red {
	case dist.RedSum:
		return "sum"
	case dist.RedProd:
		return "prod"
	case dist.RedMin:
		return "min"
	case dist.RedMax:
		return "max"
	case dist.RedAnd, dist.RedOr, dist.RedXor:
		return red.String()
	}
	return ""
}

// symbols returns the names of reduce and reducescatter for a dtype and a reduction of the library.
func symbols(dt tensor.DType, red dist.RedKind) (reduce, scatter string) {
	base := "nvshmemx_" + typeName(dt) + "_" + opName(red)
	return base + "_reduce_on_stream", base + "_reducescatter_on_stream"
}

// bind looks up all of them; a call of a missing one returns dl.ErrUnsupported.
func (r *reductions) bind(lib *dl.Library) {
	for _, dt := range tensor.DTypes() {
		for _, red := range dist.RedKinds() {
			if opName(red) == "" || red.Bitwise() && dt.IsFloat() {
				continue
			}
			reduce, scatter := symbols(dt, red)
			r.reduce[dt][red] = lib.Proc(reduce, "")
			r.scatter[dt][red] = lib.Proc(scatter, "")
		}
	}
}

// ofNCCL reports whether NCCL has the element type and the reduction, so that NVSHMEM leaves them
// to NCCL.
func ofNCCL(dt tensor.DType, red dist.RedKind) bool {
	return dt != tensor.I16 && dt != tensor.U16 && !red.Bitwise()
}
