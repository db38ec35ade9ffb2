package nvshmem

import "unsafe"

// Structs of nvshmem_types.h and nvshmem_uniqueid.h, 3.4.5. The version word is version<<16 | size;
// later libraries take the older structs.

// uniqueID is nvshmemx_uniqueid_v1: the address at which the ranks find each other.
type uniqueID struct {
	version  int32
	internal [124]byte
}

// uniqueIDArgs is nvshmemx_uniqueid_args_v1.
type uniqueIDArgs struct {
	version int32
	_       int32
	id      uintptr
	rank    int32
	ranks   int32
}

// initArgs is nvshmemx_init_args_v1.
type initArgs struct {
	version int32
	_       int32
	uid     uniqueIDArgs
	content [96]byte
}

// initAttr is nvshmemx_init_attr_v1.
type initAttr struct {
	version int32
	_       int32
	comm    uintptr
	args    initArgs
}

// teamConfig is nvshmem_team_config_v2.
type teamConfig struct {
	version  int32
	contexts int32
	id       uint64
	padding  [48]byte
}

// word returns the version word of a struct.
func word(version, bytes uintptr) int32 { return int32(version<<16 | bytes) }

// newInitAttr returns NVSHMEMX_INIT_ATTR_INITIALIZER.
func newInitAttr() initAttr {
	return initAttr{
		version: word(1, unsafe.Sizeof(initAttr{})),
		args: initArgs{
			version: word(1, unsafe.Sizeof(initArgs{})),
			uid:     uniqueIDArgs{version: word(1, unsafe.Sizeof(uniqueIDArgs{})), rank: -1, ranks: -1},
		},
	}
}

// newUniqueID returns NVSHMEMX_UNIQUEID_INITIALIZER.
func newUniqueID() uniqueID { return uniqueID{version: word(1, unsafe.Sizeof(uniqueID{}))} }

// newTeamConfig returns NVSHMEM_TEAM_CONFIG_INITIALIZER with an id.
func newTeamConfig(id uint64) teamConfig {
	return teamConfig{version: word(2, unsafe.Sizeof(teamConfig{})), contexts: -1, id: id}
}

const (
	initUniqueID   = 8 // NVSHMEMX_INIT_WITH_UNIQUEID
	teamMaskUID    = 2 // NVSHMEM_TEAM_CONFIG_MASK_UNIQUEID
	teamInvalid    = int32(-1)
	teamWorld      = int32(0)
	ownTeams       = 6 // WORLD, SHARED, NODE, SAME_MYPE_NODE, SAME_GPU, GPU_LEADERS
	noTeamID       = ^uint64(0)
	statusReady    = 2 // NVSHMEM_STATUS_IS_INITIALIZED
	statusShared   = 3 // NVSHMEM_STATUS_LIMITED_MPG: several ranks on one GPU
	heapAlignment  = 512
	signalBytes    = 8
	maxVersionWord = 4 // first major version that this package does not know
)

// SignalOp is an update of a signal.
type SignalOp int32

// The updates of a signal.
const (
	SignalSet SignalOp = 9  // = value
	SignalAdd SignalOp = 10 // += value
)

// String returns the word used in errors, such as "set".
func (op SignalOp) String() string {
	switch op {
	case SignalSet:
		return "set"
	case SignalAdd:
		return "add"
	}
	return "unknown signal operation"
}

// Comparison is the operator of a wait, between a signal and a value: signal Comparison value.
type Comparison int32

// The comparisons of nvshmem.h.
const (
	Equal Comparison = iota
	NotEqual
	Greater
	LessEqual
	Less
	GreaterEqual
)

// String returns the operator, such as ">=".
func (c Comparison) String() string {
	if c < Equal || c > GreaterEqual {
		return "unknown comparison"
	}
	return [...]string{"==", "!=", ">", "<=", "<", ">="}[c]
}

// returned has the names of the library's return codes (nvshmemx_error.h).
var returned = [...]string{
	"success", "invalid value", "out of memory", "not supported", "sizes differ between ranks", "no GPU selected",
	"collective launch failed", "internal error",
}

// codeText returns the name of a return code.
func codeText(code int32) string {
	if code < 0 || int(code) >= len(returned) {
		return "unknown error"
	}
	return returned[code]
}
