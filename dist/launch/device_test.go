package launch

import (
	"os"
	"slices"
	"strings"
	"testing"
)

func TestGPUGoesByTheLocalRank(t *testing.T) {
	for _, tt := range []struct{ localRank, localSize, count, want int }{
		{0, 1, 8, 0},
		{3, 4, 4, 3},
		{3, 4, 8, 3},
		{3, 4, 1, 0}, // each is shown its own
		{3, 4, 2, 1}, // shared: refused by whoever knows the ids
	} {
		e := Env{Rank: 8 + tt.localRank, Size: 16, LocalRank: tt.localRank, LocalSize: tt.localSize}
		if got := e.GPU(tt.count); got != tt.want {
			t.Errorf("local rank %d of %d with %d GPUs: %d, want %d", tt.localRank, tt.localSize, tt.count, got, tt.want)
		}
	}
}

func TestVisibleIsReadAsTheDriverDoes(t *testing.T) {
	for _, tt := range []struct {
		environ []string
		names   []string
		hidden  bool
		text    string
	}{
		{nil, nil, false, "CUDA_VISIBLE_DEVICES is not set"},
		{[]string{"CUDA_VISIBLE_DEVICES="}, nil, true, "CUDA_VISIBLE_DEVICES="},
		{[]string{"CUDA_VISIBLE_DEVICES=2, 0"}, []string{"2", "0"}, false, "CUDA_VISIBLE_DEVICES=2, 0"},
		{[]string{"CUDA_VISIBLE_DEVICES=1", "CUDA_VISIBLE_DEVICES=3"}, []string{"3"}, false, "CUDA_VISIBLE_DEVICES=3"},
		{[]string{"CUDA_VISIBLE_DEVICES=GPU-8932f937,MIG-1"}, []string{"GPU-8932f937", "MIG-1"}, false, "CUDA_VISIBLE_DEVICES=GPU-8932f937,MIG-1"},
		{[]string{"CUDA_VISIBLE_DEVICES=0,-1,1"}, []string{"0"}, false, `(everything after "-1", which names no GPU, is hidden)`},
		{[]string{"CUDA_VISIBLE_DEVICES=-1"}, nil, true, `"-1"`},
		{[]string{"CUDA_VISIBLE_DEVICES=NoDevFiles"}, nil, true, `"NoDevFiles"`},
		{[]string{"CUDA_VISIBLE_DEVICES=1,0,1"}, nil, true, `"1" appears twice, which hides all`},
	} {
		v := FindVisible(tt.environ)
		if !slices.Equal(v.Names, tt.names) || v.Hidden() != tt.hidden || !strings.Contains(v.String(), tt.text) {
			t.Errorf("%q: %+v, hidden %v, %q; want %q, hidden %v, %q", tt.environ, v, v.Hidden(), v, tt.names, tt.hidden, tt.text)
		}
	}
}

func TestCurrentVisibleIsThatOfTheProcess(t *testing.T) {
	t.Setenv(visibleVar, "3,1")
	if v := CurrentVisible(); !slices.Equal(v.Names, []string{"3", "1"}) || !slices.Contains(Environ(), visibleVar+"=3,1") {
		t.Errorf("%+v", v)
	}
}

// Multicast stays off even if the environment switches it on.
func TestLibrariesAreToldToLeaveMulticastOff(t *testing.T) {
	for _, v := range libraryVars {
		t.Setenv(v.name, "2")
	}
	t.Setenv("NCCL_HOSTID", "")
	if err := (Env{Host: "a"}).SetLibraryVariables(); err != nil {
		t.Fatal(err)
	}
	if a, b, c := os.Getenv("NCCL_NVLS_ENABLE"), os.Getenv("NVSHMEM_DISABLE_NVLS"), os.Getenv("NCCL_RUNTIME_CONNECT"); a != "0" || b != "1" || c != "0" {
		t.Errorf("NCCL_NVLS_ENABLE=%s NVSHMEM_DISABLE_NVLS=%s NCCL_RUNTIME_CONNECT=%s", a, b, c)
	}
	if id := os.Getenv("NCCL_HOSTID"); id != "a" {
		t.Errorf("NCCL_HOSTID=%s, want the name of the host", id)
	}
}
