package cores

import (
	"fmt"
	"runtime"
	"slices"
	"testing"
	"testing/fstest"
)

func TestCoresAreDealtOutWhole(t *testing.T) {
	threads := func(lists ...string) fstest.MapFS {
		sys := fstest.MapFS{}
		for c, l := range lists {
			sys[fmt.Sprintf("cpu%d/topology/thread_siblings_list", c)] = &fstest.MapFile{Data: []byte(l + "\n")}
		}
		return sys
	}
	halves := threads("0,4", "1,5", "2,6", "3,7", "0,4", "1,5", "2,6", "3,7")
	eight := []int{0, 1, 2, 3, 4, 5, 6, 7}
	for _, c := range []struct {
		name       string
		processors []int
		sys        fstest.MapFS
		size       int
		want       string
	}{
		{"nothing known", eight, nil, 2, "[[0 1 2 3] [4 5 6 7]]"},
		{"threads in two halves", eight, halves, 2, "[[0 4 1 5] [2 6 3 7]]"},
		{"one core each", eight, halves, 4, "[[0 4] [1 5] [2 6] [3 7]]"},
		{"a core is left over", eight, halves, 3, "[[0 4] [1 5] [2 6]]"},
		{"more ranks than cores", eight, halves, 5, "[]"},
		{"a part of the host", []int{2, 3, 6}, halves, 2, "[[2 6] [3]]"},
		{"one rank", []int{3}, nil, 1, "[[3]]"},
	} {
		if got := fmt.Sprint(Deal(c.processors, c.sys, c.size)); got != c.want {
			t.Errorf("%s: got %s, want %s", c.name, got, c.want)
		}
	}
}

func TestBindKeepsAThread(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	before, err := Allowed()
	if err != nil {
		t.Fatal(err)
	}
	last := before[len(before)-1:]
	if err := Bind(last); err != nil {
		t.Fatal(err)
	}
	if during, err := Allowed(); err != nil || !slices.Equal(during, last) {
		t.Errorf("on %v, %v, want %v", during, err, last)
	}
	if err := Bind(before); err != nil {
		t.Fatal(err)
	}
	if after, err := Allowed(); err != nil || !slices.Equal(after, before) {
		t.Errorf("afterwards on %v, %v, want %v", after, err, before)
	}
}
