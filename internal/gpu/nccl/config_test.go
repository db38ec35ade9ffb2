package nccl

import (
	"errors"
	"strings"
	"testing"
	"unsafe"

	"github.com/symgrad/symgrad/dist"
)

func TestVersionsAreTakenApart(t *testing.T) {
	for code, want := range map[Version]string{
		22803: "2.28.3", 23007: "2.30.7", 21403: "2.14.3", 2804: "2.8.4", 2408: "2.4.8", 20906: "2.9.6",
	} {
		if got := code.String(); got != want {
			t.Errorf("%d: %s, want %s", int(code), got, want)
		}
	}
	err := Version(22803).need(peerVersion, "grow")
	if !errors.Is(err, dist.ErrUnsupported) || !strings.Contains(err.Error(), "grow needs NCCL 2.29.2 or later, this is 2.28.3") {
		t.Errorf("error %v", err)
	}
	if err := peerVersion.need(peerVersion, "grow"); err != nil {
		t.Error(err)
	}
}

func TestWrongSettingsAreRefused(t *testing.T) {
	for name, c := range map[string]Config{
		"MinCTAs": {MinCTAs: -1}, "MaxCTAs": {MinCTAs: 8, MaxCTAs: 4}, "ClusterSize": {ClusterSize: -4},
		"TrafficClass": {TrafficClass: -1}, "Policy": {Policy: 3}, "InitTimeout": {InitTimeout: -1},
	} {
		_, err := Open(c)
		for _, err := range []error{c.Validate(), err} {
			if !errors.Is(err, dist.ErrInvalid) || !strings.Contains(err.Error(), name) {
				t.Errorf("%+v: error %v, want ErrInvalid that names %s", c, err, name)
			}
		}
	}
	if err := (Config{MinCTAs: 4, MaxCTAs: 4, Policy: PolicyZero}).Validate(); err != nil {
		t.Error(err)
	}
}

// A library that does not know a setting would drop it.
func TestSettingsThatTheLibraryIsTooOldForAreRefused(t *testing.T) {
	for _, c := range []struct {
		cfg   Config
		least Version
		name  string
	}{
		{Config{MinCTAs: 1}, 21701, "MinCTAs"},
		{Config{MaxCTAs: 1}, 21701, "MaxCTAs"},
		{Config{ClusterSize: 2}, 21701, "ClusterSize"},
		{Config{TrafficClass: 1}, 22602, "TrafficClass"},
		{Config{Policy: PolicyEfficiency}, 22703, "efficiency"},
		{Config{Policy: PolicyZero}, 22803, "zero"},
	} {
		if err := c.cfg.fits(c.least); err != nil {
			t.Error(err)
		}
		err := c.cfg.fits(c.least - 1)
		if !errors.Is(err, dist.ErrUnsupported) || !strings.Contains(err.Error(), c.name) || !strings.Contains(err.Error(), c.least.String()) {
			t.Errorf("NCCL %v: error %v, want ErrUnsupported that names %s and %v", c.least-1, err, c.name, c.least)
		}
	}
	if err := (Config{}).fits(leastVersion); err != nil {
		t.Error(err)
	}
}

func TestConfigIsUndefinedWhereNothingIsSet(t *testing.T) {
	var c config
	Config{}.fill(&c, 42)
	want := config{
		size: 96, magic: 0xcafebeef, version: 23007, blocking: 1, cgaClusterSize: undefInt, minCTAs: undefInt, maxCTAs: undefInt,
		splitShare: undefInt, trafficClass: undefInt, commName: 42, collnetEnable: undefInt, ctaPolicy: undefInt,
		shrinkShare: undefInt, nvlsCTAs: undefInt, channelsPerNetPeer: undefInt, nvlinkCentricSched: undefInt,
		graphUsageMode: undefInt, numRmaCtx: undefInt, maxP2PPeers: undefInt, graphStreamOrder: undefInt,
	}
	if c != want {
		t.Errorf("got  %+v\nwant %+v", c, want)
	}
	Config{MinCTAs: 8, ClusterSize: 2, TrafficClass: 3, Policy: PolicyZero}.fill(&c, 0)
	if c.minCTAs != 8 || c.cgaClusterSize != 2 || c.trafficClass != 3 || c.ctaPolicy != 2 {
		t.Errorf("settings are not passed on: %+v", c)
	}
	// NCCL refuses minCTAs > maxCTAs, and undefined is the least number there is.
	if c.maxCTAs < c.minCTAs {
		t.Errorf("maxCTAs %d is below minCTAs %d", c.maxCTAs, c.minCTAs)
	}
	Config{MinCTAs: 100}.fill(&c, 0)
	if c.maxCTAs != 100 {
		t.Errorf("maxCTAs %d, want 100", c.maxCTAs)
	}
	Config{MaxCTAs: 16}.fill(&c, 0)
	if c.maxCTAs != 16 || c.minCTAs != undefInt {
		t.Errorf("CTAs %d to %d", c.minCTAs, c.maxCTAs)
	}
}

// NCCL reads bytes: maxCTAs is at offset 28, after minCTAs at 24, which is undefined and so
// smaller.
func TestTheMostBlocksLieWhereNCCLReadsThem(t *testing.T) {
	var c config
	Config{MaxCTAs: 32}.fill(&c, 0)
	raw := *(*[unsafe.Sizeof(c)]byte)(unsafe.Pointer(&c))
	if want := [8]byte{3: 0x80, 4: 32}; [8]byte(raw[24:]) != want {
		t.Errorf("bytes 24 to 31 are %x, want %x", raw[24:32], want)
	}
}

func TestRanksThatDoNotFitAreNamed(t *testing.T) {
	one := rankInfo{uuid: [16]byte{1}, version: 22803, settings: Config{}.settings()}
	two := one
	two.uuid = [16]byte{2}
	old := two
	old.version = 22703
	other := two
	other.settings = Config{MaxCTAs: 4}.settings()
	oneHost := func(int, int) bool { return true }
	if err := fit([]rankInfo{one, two}, oneHost); err != nil {
		t.Error(err)
	}
	if err := fit([]rankInfo{one, one}, func(q, r int) bool { return q == r }); err != nil {
		t.Errorf("a GPU that two hosts share: %v", err)
	}
	if got := rankInfoOf(one.bytes()); got != one || len(one.bytes()) != rankInfoBytes {
		t.Errorf("got %+v of %d B, want %+v", got, len(one.bytes()), one)
	}
	for _, c := range []struct {
		all  []rankInfo
		want error
		text string
	}{
		{[]rankInfo{one, two, one}, dist.ErrDevice, "ranks 0 and 2 have the same GPU"},
		{[]rankInfo{one, old}, dist.ErrMismatch, "rank 0 has NCCL 2.28.3, rank 1 NCCL 2.27.3"},
		{[]rankInfo{one, other}, dist.ErrMismatch, "settings: rank 1 differs"},
	} {
		if err := fit(c.all, oneHost); !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.text) {
			t.Errorf("error %v, want %v with %q", err, c.want, c.text)
		}
	}
}
