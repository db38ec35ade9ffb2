package nvshmem

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/internal/dl"
	"github.com/symgrad/symgrad/internal/dl/dltest"
	"github.com/symgrad/symgrad/tensor"
)

func TestConfigValidate(t *testing.T) {
	for _, c := range []struct {
		name string
		cfg  Config
		want string // in the error; "" for none
	}{
		{"zero", Config{}, ""},
		{"all set", Config{MaxTeams: 7, HeapBytes: 1 << 30, GranularityBytes: 2 << 20, StagingBytes: 1 << 16, TeamStagingBytes: 1 << 16}, ""},
		{"negative teams", Config{MaxTeams: -1}, "MaxTeams is -1"},
		{"too few teams", Config{MaxTeams: 6}, "want 7 to 256"},
		{"too many teams", Config{MaxTeams: 257}, "want 7 to 256"},
		{"negative heap", Config{HeapBytes: -1}, "HeapBytes is -1"},
		{"heap of one step", Config{HeapBytes: 512 << 20}, "more than GranularityBytes"},
		{"granularity no power of two", Config{GranularityBytes: 3 << 20}, "power of two"},
		{"granularity too small", Config{GranularityBytes: 1 << 20}, "at least 2 MiB"},
		{"little staging", Config{StagingBytes: 1000}, "at least 65536"},
		{"little team staging", Config{TeamStagingBytes: 1000}, "at least 65536"},
		{"NUL byte", Config{Interface: "eth\x000"}, "NUL byte"},
	} {
		err := c.cfg.Validate()
		switch {
		case c.want == "" && err != nil:
			t.Errorf("%s: %v", c.name, err)
		case c.want != "" && (!errors.Is(err, dist.ErrInvalid) || !strings.Contains(err.Error(), c.want)):
			t.Errorf("%s: error %v, want ErrInvalid with %q", c.name, err, c.want)
		}
	}
}

func TestEnvironmentIsCompleteAndNeverAllowsMulticast(t *testing.T) {
	vars := Config{Debug: "INFO", RemoteTransport: "ibrc", Interface: "eth0"}.defaults().environment("/lib/plugin.so.3", true)
	got := map[string]string{}
	for _, v := range vars {
		if _, twice := got[v.name]; twice {
			t.Errorf("%s is set twice", v.name)
		}
		got[v.name] = v.value
	}
	for name, want := range map[string]string{
		"NVSHMEM_DISABLE_NVLS":              "1",
		"NCCL_NVLS_ENABLE":                  "0",
		"NCCL_RUNTIME_CONNECT":              "0",
		"NVSHMEM_REMOTE_TRANSPORT":          "ibrc",
		"NVSHMEM_BOOTSTRAP_UID_SOCK_IFNAME": "eth0",
		"NVSHMEM_BOOTSTRAP_UID_PLUGIN":      "/lib/plugin.so.3",
		"NVSHMEM_DISABLE_NCCL":              "0",
		"NVSHMEM_MAX_TEAMS":                 "64",
		"NVSHMEM_MAX_MEMORY_PER_GPU":        "137438953472",
		"NVSHMEM_CUMEM_GRANULARITY":         "536870912",
		"NVSHMEM_REDUCE_SCRATCH_SIZE":       "524288",
		"NVSHMEM_DISABLE_CUDA_VMM":          "0",
		"NVSHMEM_DEBUG":                     "INFO",
	} {
		if got[name] != want {
			t.Errorf("%s is %q, want %q", name, got[name], want)
		}
	}
	d := Config{}.defaults()
	if d.Interface != "lo" || d.RemoteTransport != "none" {
		t.Errorf("interface %q and transport %q by default, want lo and none", d.Interface, d.RemoteTransport)
	}
	for _, v := range d.environment(plugin, false) {
		if v.name == "NVSHMEM_DISABLE_NCCL" && v.value != "1" || v.name == "NVSHMEM_DEBUG" {
			t.Errorf("%s is %q without NCCL and Debug", v.name, v.value)
		}
	}
}

func TestHashTellsSettingsApartThatRanksMustShare(t *testing.T) {
	base := Config{}.defaults()
	for _, other := range []Config{
		{DisableNCCL: true},
		{Interface: "eth0"},
		{RemoteTransport: "ucx"},
		{MaxTeams: 10},
		{HeapBytes: 1 << 31},
		{GranularityBytes: 4 << 20},
		{StagingBytes: 1 << 20},
		{TeamStagingBytes: 1 << 20},
	} {
		if other.defaults().hash() == base.hash() {
			t.Errorf("%+v has the hash of the defaults", other)
		}
	}
	if (Config{Path: "/a", NCCL: "/b", Debug: "INFO"}).defaults().hash() != base.hash() {
		t.Error("paths and Debug may differ between ranks")
	}
}

func TestSetReachesCsEnvironment(t *testing.T) {
	c, err := openC()
	if err != nil {
		t.Fatal(err)
	}
	lib, err := dl.Open(dl.Search{Name: "libc", Sonames: []string{"libc.so.6"}})
	if err != nil {
		t.Fatal(err)
	}
	var table struct {
		getenv func(name string) string `dl:"getenv"`
	}
	if err := lib.Bind(&table); err != nil {
		t.Fatal(err)
	}
	for _, value := range []string{"1", "", "two words"} {
		if err := c.set([]variable{{"SYMGRAD_TEST_OF_SETENV", value}}); err != nil {
			t.Fatal(err)
		}
		if got := table.getenv("SYMGRAD_TEST_OF_SETENV"); got != value {
			t.Errorf("C reads %q, want %q", got, value)
		}
	}
	for name, want := range map[string]string{"SYMGRAD_TEST_OF_SETENV": "two words", "SYMGRAD_TEST_OF_OFFER": "offered"} {
		if err := c.offer([]variable{{name, "offered"}}); err != nil {
			t.Fatal(err)
		}
		if got := table.getenv(name); got != want {
			t.Errorf("C reads %q of %s that was offered, want %q", got, name, want)
		}
	}
	if err := c.set([]variable{{"A=B", "1"}}); err == nil || !strings.Contains(err.Error(), "A=B") {
		t.Errorf("error %v for a name that setenv refuses, want one that names it", err)
	}
}

func TestOpenNamesWhatIsMissing(t *testing.T) {
	dir := t.TempDir()
	for _, c := range []struct {
		name string
		cfg  Config
		want []string // in the error
	}{
		{"no such file", Config{Path: filepath.Join(dir, "libnvshmem_host.so.3"), DisableNCCL: true}, []string{dir, "library not found"}},
		{"another library", Config{Path: "libc.so.6", DisableNCCL: true}, []string{"nvshmemx_vendor_get_version_info", "3.0.6 or later"}},
		{"no such NCCL", Config{NCCL: filepath.Join(dir, "libnccl.so.2")}, []string{"the NCCL for NVSHMEM", dir}},
		{"another NCCL", Config{NCCL: "libc.so.6"}, []string{"the NCCL for NVSHMEM", "ncclGetVersion"}},
	} {
		_, err := Open(c.cfg)
		if !errors.Is(err, ErrLibrary) || !IsUnavailable(err) {
			t.Errorf("%s: error %v, want ErrLibrary", c.name, err)
			continue
		}
		for _, want := range c.want {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%s: error %q does not say %q", c.name, err, want)
			}
		}
	}
	if _, err := Open(Config{MaxTeams: 1}); !errors.Is(err, dist.ErrInvalid) {
		t.Errorf("a wrong setting gives %v, want ErrInvalid", err)
	}
}

// A library that is too old or of an unknown version is rejected before its other functions are
// looked up.
func TestVersionsThatAreNotKnownAreRefused(t *testing.T) {
	if !dltest.Alone(t) { // NVSHMEM is loaded for all to see
		return
	}
	for version, flags := range map[string][]string{
		"2.11.0": {"-DMAJOR=2", "-DMINOR=11", "-DPATCH=0"},
		"3.0.5":  {"-DMAJOR=3", "-DMINOR=0", "-DPATCH=5"},
		"4.0.0":  {"-DMAJOR=4", "-DMINOR=0", "-DPATCH=0"},
		"3.4.5":  {"-DMAJOR=3", "-DMINOR=4", "-DPATCH=5"}, // and lacks its functions
	} {
		path := dltest.Compile(t, "libnvshmem_host.so.3", "testdata/version.c", flags...)
		_, err := Open(Config{Path: path, DisableNCCL: true})
		if !errors.Is(err, ErrLibrary) || !IsUnavailable(err) || !strings.Contains(err.Error(), version) {
			t.Errorf("%s: error %v, want ErrLibrary that names the version", version, err)
			continue
		}
		old := strings.Contains(err.Error(), leastVersion.String()) && strings.Contains(err.Error(), path)
		if old == errors.Is(err, dl.ErrUnsupported) || old != (version != "3.4.5") {
			t.Errorf("%s: %v", version, err)
		}
	}
}

func TestPluginMustLieBesideTheLibraryOrWhereTheLoaderLooks(t *testing.T) {
	lib, err := dl.Open(dl.Search{Name: "nvshmem", Sonames: []string{"libc.so.6"}})
	if err != nil {
		t.Fatal(err)
	}
	err = (&Library{lib: lib}).openPlugin()
	if !errors.Is(err, ErrLibrary) {
		t.Fatalf("error %v, want ErrLibrary", err)
	}
	for _, want := range []string{filepath.Join(filepath.Dir(lib.Path()), plugin), pluginBare} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("error %q does not name %s", err, want)
		}
	}
}

func TestChooseNCCL(t *testing.T) {
	dir := t.TempDir()
	file := func(name string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(name), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	a, b := file("a"), file("b")
	link := filepath.Join(dir, "link")
	if err := os.Symlink(a, link); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name   string
		wanted string
		loaded []string
		want   string // "!" for an error
	}{
		{"nothing loaded, nothing wanted", "", nil, ""},
		{"nothing loaded", a, nil, a},
		{"the loaded one", "", []string{a}, a},
		{"by another name", link, []string{a}, a},
		{"by its soname", "libnccl.so.2", []string{a}, a},
		{"a different one", b, []string{a}, "!"},
		{"two loaded", "", []string{a, b}, "!"},
		{"one file mapped by two names", "", []string{a, link}, a},
	} {
		got, err := chooseNCCL(c.wanted, c.loaded)
		if c.want == "!" {
			if !errors.Is(err, ErrLibrary) || !strings.Contains(err.Error(), a) || !strings.Contains(err.Error(), b) {
				t.Errorf("%s: error %v, want ErrLibrary with both paths", c.name, err)
			}
		} else if err != nil || got != c.want {
			t.Errorf("%s: %q, %v, want %q", c.name, got, err, c.want)
		}
	}
}

func TestMappedFindsALibraryUnderAnyVersion(t *testing.T) {
	const maps = `7f0000000000-7f0000001000 r-xp 00000000 08:01 11 /opt/nccl 2/libnccl.so.2.28.3
7f0000001000-7f0000002000 r--p 00000000 08:01 11 /opt/nccl 2/libnccl.so.2.28.3
7f0000002000-7f0000003000 r--p 00000000 08:01 12 /opt/libnccl-net.so
7f0000003000-7f0000004000 rw-p 00000000 00:00 0 [heap]
7f0000004000-7f0000005000 r-xp 00000000 08:01 13 /usr/lib/libnccl.so (deleted)
7f0000005000-7f0000006000 rw-p 00000000 00:00 0`
	got, err := mapped(strings.NewReader(maps), "libnccl.so")
	if want := []string{"/opt/nccl 2/libnccl.so.2.28.3", "/usr/lib/libnccl.so"}; err != nil || !slices.Equal(got, want) {
		t.Errorf("found %q, %v, want %q", got, err, want)
	}
	if got, err := mappedHere("libc.so"); err != nil || len(got) != 1 {
		t.Errorf("this process has libc at %q, %v", got, err)
	}
}

func TestSymbolsOfEveryReduction(t *testing.T) {
	seen := map[string]bool{}
	for _, dt := range tensor.DTypes() {
		for _, red := range dist.RedKinds() {
			if red == dist.RedAvg || red == dist.RedPreMulSum || red.Bitwise() && dt.IsFloat() {
				continue
			}
			reduce, scatter := symbols(dt, red)
			if typeName(dt) == "" || opName(red) == "" || seen[reduce] || seen[scatter] {
				t.Errorf("%v %v: %q and %q", dt, red, reduce, scatter)
			}
			seen[reduce], seen[scatter] = true, true
		}
	}
	// From the preprocessed headers.
	for _, want := range []string{
		"nvshmemx_float_sum_reduce_on_stream", "nvshmemx_half_max_reduce_on_stream", "nvshmemx_bfloat16_min_reduce_on_stream",
		"nvshmemx_double_prod_reduce_on_stream", "nvshmemx_int8_sum_reducescatter_on_stream", "nvshmemx_uint16_prod_reducescatter_on_stream",
		"nvshmemx_int64_min_reducescatter_on_stream", "nvshmemx_uint64_max_reduce_on_stream", "nvshmemx_uint8_sum_reduce_on_stream",
		"nvshmemx_int32_and_reduce_on_stream", "nvshmemx_uint8_or_reducescatter_on_stream", "nvshmemx_uint64_xor_reduce_on_stream",
	} {
		if !seen[want] {
			t.Errorf("%s is not looked up", want)
		}
	}
	if len(seen) != 96+48 {
		t.Errorf("%d symbols, want 12 types times 4 reductions times 2, and 8 types of integers times 3 times 2", len(seen))
	}
	if typeName(tensor.Invalid) != "" || opName(dist.RedAvg) != "" || opName(dist.RedPreMulSum) != "" {
		t.Error("the library has neither the invalid type nor avg nor premulsum")
	}
	if sum := dist.RedSum; ofNCCL(tensor.I16, sum) || ofNCCL(tensor.U16, sum) || !ofNCCL(tensor.BF16, sum) || !ofNCCL(tensor.I8, sum) || ofNCCL(tensor.I8, dist.RedAnd) {
		t.Error("NCCL has all types except the 16-bit integers, and no and")
	}
}

func TestIdentitiesOfRanks(t *testing.T) {
	id := func(gpu byte, version, nccl, hash uint32) []byte {
		b := make([]byte, identityBytes)
		b[0] = gpu
		b[16], b[20], b[24], b[28], b[32] = 3, 4, byte(version), byte(nccl), byte(hash)
		return b
	}
	for _, c := range []struct {
		name string
		all  [][]byte
		kind error
		want string
	}{
		{"alike", [][]byte{id(1, 5, 9, 0), id(2, 5, 9, 0), id(3, 5, 9, 0)}, nil, ""},
		{"one GPU twice", [][]byte{id(1, 5, 9, 0), id(2, 5, 9, 0), id(1, 5, 9, 0)}, dist.ErrDevice, "ranks 0 and 2"},
		{"two versions", [][]byte{id(1, 5, 9, 0), id(2, 6, 9, 0)}, dist.ErrMismatch, "rank 0 has NVSHMEM 3.4.5, rank 1 has 3.4.6"},
		{"two NCCLs", [][]byte{id(1, 5, 9, 0), id(2, 5, 8, 0)}, dist.ErrMismatch, "uses NCCL 9, that of rank 1 uses 8"},
		{"two settings", [][]byte{id(1, 5, 9, 0), id(2, 5, 9, 1)}, dist.ErrMismatch, "settings of rank 1 differ"},
	} {
		err := compareIdentities(c.all)
		switch {
		case c.kind == nil && err != nil:
			t.Errorf("%s: %v", c.name, err)
		case c.kind != nil && (!errors.Is(err, c.kind) || !strings.Contains(err.Error(), c.want)):
			t.Errorf("%s: error %v, want %v with %q", c.name, err, c.kind, c.want)
		}
	}
}

func TestVersionsCompare(t *testing.T) {
	for _, c := range []struct {
		a, b Version
		less bool
	}{
		{Version{3, 0, 5}, leastVersion, true},
		{Version{2, 11, 0}, leastVersion, true},
		{leastVersion, leastVersion, false},
		{Version{3, 4, 5}, leastVersion, false},
		{Version{3, 1, 0}, leastVersion, false},
	} {
		if got := c.a.less(c.b); got != c.less {
			t.Errorf("%v older than %v: %v", c.a, c.b, got)
		}
	}
}
