package nvshmem

import (
	"testing"
	"unsafe"
)

// Sizes and offsets are those that g++ gives for the headers of NVSHMEM 3.4.5 on x86-64.
func TestStructsHaveTheLayoutOfTheHeaders(t *testing.T) {
	var (
		id   uniqueID
		args uniqueIDArgs
		init initArgs
		attr initAttr
		team teamConfig
	)
	for _, c := range []struct {
		what      string
		got, want uintptr
	}{
		{"sizeof nvshmemx_uniqueid_v1", unsafe.Sizeof(id), 128},
		{"nvshmemx_uniqueid_v1.version", unsafe.Offsetof(id.version), 0},
		{"nvshmemx_uniqueid_v1.internal", unsafe.Offsetof(id.internal), 4},
		{"sizeof nvshmemx_uniqueid_args_v1", unsafe.Sizeof(args), 24},
		{"nvshmemx_uniqueid_args_v1.version", unsafe.Offsetof(args.version), 0},
		{"nvshmemx_uniqueid_args_v1.id", unsafe.Offsetof(args.id), 8},
		{"nvshmemx_uniqueid_args_v1.myrank", unsafe.Offsetof(args.rank), 16},
		{"nvshmemx_uniqueid_args_v1.nranks", unsafe.Offsetof(args.ranks), 20},
		{"sizeof nvshmemx_init_args_v1", unsafe.Sizeof(init), 128},
		{"nvshmemx_init_args_v1.version", unsafe.Offsetof(init.version), 0},
		{"nvshmemx_init_args_v1.uid_args", unsafe.Offsetof(init.uid), 8},
		{"nvshmemx_init_args_v1.content", unsafe.Offsetof(init.content), 32},
		{"sizeof nvshmemx_init_attr_v1", unsafe.Sizeof(attr), 144},
		{"nvshmemx_init_attr_v1.version", unsafe.Offsetof(attr.version), 0},
		{"nvshmemx_init_attr_v1.mpi_comm", unsafe.Offsetof(attr.comm), 8},
		{"nvshmemx_init_attr_v1.args", unsafe.Offsetof(attr.args), 16},
		{"sizeof nvshmem_team_config_v2", unsafe.Sizeof(team), 64},
		{"nvshmem_team_config_v2.version", unsafe.Offsetof(team.version), 0},
		{"nvshmem_team_config_v2.num_contexts", unsafe.Offsetof(team.contexts), 4},
		{"nvshmem_team_config_v2.uniqueid", unsafe.Offsetof(team.id), 8},
		{"nvshmem_team_config_v2.padding", unsafe.Offsetof(team.padding), 16},
		{"init_attr.args.uid_args.version", unsafe.Offsetof(attr.args) + unsafe.Offsetof(init.uid), 24},
		{"init_attr.args.uid_args.id", unsafe.Offsetof(attr.args) + unsafe.Offsetof(init.uid) + unsafe.Offsetof(args.id), 32},
		{"init_attr.args.uid_args.myrank", unsafe.Offsetof(attr.args) + unsafe.Offsetof(init.uid) + unsafe.Offsetof(args.rank), 40},
		{"init_attr.args.uid_args.nranks", unsafe.Offsetof(attr.args) + unsafe.Offsetof(init.uid) + unsafe.Offsetof(args.ranks), 44},
		{"align of nvshmemx_init_attr_v1", unsafe.Alignof(attr), 8},
	} {
		if c.got != c.want {
			t.Errorf("%s is %d, want %d", c.what, c.got, c.want)
		}
	}
}

func TestInitialValuesAreThoseOfTheHeaders(t *testing.T) {
	attr := newInitAttr()
	for _, c := range []struct {
		what      string
		got, want int64
	}{
		{"uniqueid", int64(newUniqueID().version), 0x10080},
		{"uniqueid_args", int64(attr.args.uid.version), 0x10018},
		{"uniqueid_args.myrank", int64(attr.args.uid.rank), -1},
		{"uniqueid_args.nranks", int64(attr.args.uid.ranks), -1},
		{"init_args", int64(attr.args.version), 0x10080},
		{"init_attr", int64(attr.version), 0x10090},
		{"team_config", int64(newTeamConfig(7).version), 0x20040},
		{"team_config.num_contexts", int64(newTeamConfig(7).contexts), -1},
		{"team_config.uniqueid", int64(newTeamConfig(7).id), 7},
	} {
		if c.got != c.want {
			t.Errorf("%s is %#x, want %#x", c.what, c.got, c.want)
		}
	}
}

func TestNamesOfConstants(t *testing.T) {
	for _, c := range []struct{ got, want string }{
		{Equal.String(), "=="},
		{NotEqual.String(), "!="},
		{Greater.String(), ">"},
		{LessEqual.String(), "<="},
		{Less.String(), "<"},
		{GreaterEqual.String(), ">="},
		{Comparison(6).String(), "unknown comparison"},
		{Comparison(-1).String(), "unknown comparison"},
		{SignalSet.String(), "set"},
		{SignalAdd.String(), "add"},
		{SignalOp(0).String(), "unknown signal operation"},
		{codeText(0), "success"},
		{codeText(7), "internal error"},
		{codeText(8), "unknown error"},
		{codeText(-1), "unknown error"},
	} {
		if c.got != c.want {
			t.Errorf("got %q, want %q", c.got, c.want)
		}
	}
	// nvshmem_constants.h: CMP EQ 0, NE 1, GT 2, LE 3, LT 4, GE 5; SIGNAL_SET 9, SIGNAL_ADD 10.
	if Equal != 0 || NotEqual != 1 || Greater != 2 || LessEqual != 3 || Less != 4 || GreaterEqual != 5 || SignalSet != 9 || SignalAdd != 10 {
		t.Error("the constants differ from those of the headers")
	}
}
