package nccl

import (
	"fmt"
	"strings"
	"testing"
	"unsafe"
)

// Sizes and offsets as gcc has them for nccl.h of 2.30.7 on x86-64.
func TestStructsHaveTheLayoutOfC(t *testing.T) {
	var c config
	var w windowVidmem
	for _, f := range []struct {
		name      string
		got, want uintptr
	}{
		{"ncclUniqueId", unsafe.Sizeof(UniqueID{}), 128},
		{"ncclConfig_t", unsafe.Sizeof(c), 96},
		{"ncclConfig_t alignment", unsafe.Alignof(c), 8},
		{"size", unsafe.Offsetof(c.size), 0},
		{"magic", unsafe.Offsetof(c.magic), 8},
		{"version", unsafe.Offsetof(c.version), 12},
		{"blocking", unsafe.Offsetof(c.blocking), 16},
		{"cgaClusterSize", unsafe.Offsetof(c.cgaClusterSize), 20},
		{"minCTAs", unsafe.Offsetof(c.minCTAs), 24},
		{"maxCTAs", unsafe.Offsetof(c.maxCTAs), 28},
		{"netName", unsafe.Offsetof(c.netName), 32},
		{"splitShare", unsafe.Offsetof(c.splitShare), 40},
		{"trafficClass", unsafe.Offsetof(c.trafficClass), 44},
		{"commName", unsafe.Offsetof(c.commName), 48},
		{"collnetEnable", unsafe.Offsetof(c.collnetEnable), 56},
		{"CTAPolicy", unsafe.Offsetof(c.ctaPolicy), 60},
		{"shrinkShare", unsafe.Offsetof(c.shrinkShare), 64},
		{"nvlsCTAs", unsafe.Offsetof(c.nvlsCTAs), 68},
		{"nChannelsPerNetPeer", unsafe.Offsetof(c.channelsPerNetPeer), 72},
		{"nvlinkCentricSched", unsafe.Offsetof(c.nvlinkCentricSched), 76},
		{"graphUsageMode", unsafe.Offsetof(c.graphUsageMode), 80},
		{"numRmaCtx", unsafe.Offsetof(c.numRmaCtx), 84},
		{"maxP2pPeers", unsafe.Offsetof(c.maxP2PPeers), 88},
		{"graphStreamOrdering", unsafe.Offsetof(c.graphStreamOrder), 92},
		{"ncclWindow_vidmem, its head", unsafe.Sizeof(w), 32},
		{"winHost", unsafe.Offsetof(w.host), 0},
		{"lsaFlatBase", unsafe.Offsetof(w.flatBase), 8},
		{"lsaRank", unsafe.Offsetof(w.lsaRank), 16},
		{"worldRank", unsafe.Offsetof(w.rank), 20},
		{"stride4G", unsafe.Offsetof(w.stride4G), 24},
		{"mcOffset4K", unsafe.Offsetof(w.mcOffset), 28},
	} {
		if f.got != f.want {
			t.Errorf("%s: %d, want %d", f.name, f.got, f.want)
		}
	}
}

// Aligned fields for NCCL are aligned, and everything fits the page.
func TestPageHoldsEverything(t *testing.T) {
	var p page
	if size := unsafe.Sizeof(p); size > pageBytes {
		t.Errorf("a page takes %d B of %d", size, pageBytes)
	}
	for name, off := range map[string]uintptr{
		"config": unsafe.Offsetof(p.cfg), "scalar": unsafe.Offsetof(p.scalar), "comm": unsafe.Offsetof(p.comm),
		"id": unsafe.Offsetof(p.id),
	} {
		if off%8 != 0 {
			t.Errorf("%s at offset %d, which 8 does not divide", name, off)
		}
	}
}

func TestPageIsMemoryOfItsOwn(t *testing.T) {
	p, raw, err := newPage()
	if err != nil {
		t.Fatal(err)
	}
	c := &Comm{mem: p, raw: raw}
	for range 2 {
		if err := c.unmap(); err != nil {
			t.Error(err)
		}
	}
}

// A name is a C string at an address of its own that stays; equal names share it.
func TestNamesStay(t *testing.T) {
	var n names
	long := strings.Repeat("x", 100)
	at := map[string]uintptr{}
	for i := range 3 * pageBytes / nameBytes {
		for _, name := range []string{long, "", "world", fmt.Sprintf("group %d", i)} {
			got, err := n.of(name)
			if err != nil {
				t.Fatal(err)
			}
			if have, ok := at[name]; ok && have != got {
				t.Fatalf("%q is at %#x and %#x", name, have, got)
			}
			at[name] = got
		}
	}
	seen := map[uintptr]bool{}
	for name, p := range at {
		want := name[:min(len(name), nameBytes-1)] + "\x00"
		if got := unsafe.String(*(**byte)(unsafe.Pointer(&p)), len(want)); got != want || seen[p] {
			t.Errorf("%q at %#x, seen %v; want %q", got, p, seen[p], want)
		}
		seen[p] = true
	}
}
