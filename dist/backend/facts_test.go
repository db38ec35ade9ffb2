package backend

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/internal/gpu"
)

// four is the facts of four ranks on as many GPUs.
func four() []facts {
	var all []facts
	for r := range 4 {
		id := gpuID{UUID: uuidText([16]byte{byte(r), 15: 0xff}), PCI: "0000:1" + string(rune('a'+r)) + ":00.0", Name: "NVIDIA H200"}
		all = append(all, facts{Backend: CUDA, GPU: id, Count: 4, Visible: "CUDA_VISIBLE_DEVICES is not set", Driver: 13000})
	}
	return all
}

func TestJudgeNamesRanksAndGPU(t *testing.T) {
	for _, tt := range []struct {
		name   string
		change func(all []facts)
		want   error
		words  []string
	}{
		{"four GPUs", func([]facts) {}, nil, nil},
		{
			"a GPU used twice",
			func(all []facts) {
				all[3].GPU, all[3].Count, all[3].Visible = all[1].GPU, 2, "CUDA_VISIBLE_DEVICES=0,1"
			},
			dist.ErrDevice,
			[]string{"ranks 1 and 3 have one GPU, GPU-01000000-0000-0000-0000-0000000000ff (0000:1b:00.0)", "sees 2 of them for 4 ranks (CUDA_VISIBLE_DEVICES=0,1)", "no more ranks than GPUs"},
		},
		{
			"a GPU used twice though there are enough",
			func(all []facts) { all[2].GPU = all[0].GPU },
			dist.ErrDevice,
			[]string{"ranks 0 and 2 have one GPU", "by one launcher"},
		},
		{"other backends", func(all []facts) { all[2].Backend = NCCL }, dist.ErrMismatch, []string{"rank 0 opens cuda, rank 2 nccl"}},
		{"other engines", func(all []facts) { all[1].Engine = "nccl" }, dist.ErrMismatch, []string{`rank 0 has "" forced, rank 1 "nccl"`}},
		{"other bounds", func(all []facts) { all[2].MaxCTAs = 32 }, dist.ErrMismatch, []string{"on the most blocks of an operation: rank 0 has 0, rank 2 32"}},
		{"other drivers", func(all []facts) { all[3].Driver = 12080 }, dist.ErrMismatch, []string{"for CUDA 13.0, rank 3 for 12.8"}},
	} {
		all := four()
		tt.change(all)
		lines := make([][]byte, len(all))
		for r, f := range all {
			var err error
			if lines[r], err = f.encode(); err != nil || len(lines[r]) != factsBytes {
				t.Fatalf("%s: rank %d: %d B, %v", tt.name, r, len(lines[r]), err)
			}
		}
		told, err := decodeFacts(lines)
		if err != nil || !slices.Equal(told, all) {
			t.Fatalf("%s: %v, %+v", tt.name, err, told)
		}
		err = judge(told, &gpu.Member{Size: len(told)})
		if !errors.Is(err, tt.want) {
			t.Errorf("%s: error %v, want %v", tt.name, err, tt.want)
		}
		for _, w := range tt.words {
			if err == nil || !strings.Contains(err.Error(), w) {
				t.Errorf("%s: error %v, want %q in it", tt.name, err, w)
			}
		}
	}
}

func TestFactsFitWhateverTheEnvironmentHolds(t *testing.T) {
	f := four()[0]
	f.Visible = strings.Repeat("\"\x01é", 5000)
	line, err := f.encode()
	if err == nil {
		_, err = decodeFacts([][]byte{line})
	}
	if err != nil && !errors.Is(err, dist.ErrInvalid) || len(line) != factsBytes {
		t.Errorf("%d B, %v", len(line), err)
	}
	if _, err := decodeFacts([][]byte{line[:10]}); err == nil || !strings.Contains(err.Error(), "rank 0") {
		t.Errorf("half a line: %v", err)
	}
}

func oneHost(int) bool { return true }

// Ranks of other hosts may have other drivers, GPUs without peer access, and this rank's GPU.
func TestFactsOfOtherHostsMayDiffer(t *testing.T) {
	all := four()
	all[3].Driver = 12080
	m := &gpu.Member{Size: 4, Hosts: []int{0, 0, 0, 1}}
	if err := judge(all, m); err != nil {
		t.Error(err)
	}
	if err := judge(all, &gpu.Member{Size: 4, Rank: 2, Hosts: []int{0, 0, 1, 1}}); !errors.Is(err, dist.ErrMismatch) {
		t.Errorf("error %v, want a mismatch of ranks 2 and 3", err)
	}
	ids := []gpuID{all[0].GPU, all[3].GPU}
	if err := reaches(ids, 0, 0, all, m.Near, func(int, int) (bool, error) { return false, nil }); err != nil {
		t.Error(err)
	}
	all[3].GPU = all[0].GPU
	if err := judge(all, m); err != nil {
		t.Errorf("a GPU that two hosts share: %v", err)
	}
}

func TestReachesNamesThePair(t *testing.T) {
	all := four()
	var ids []gpuID
	for _, f := range all[:3] { // the last is hidden
		ids = append(ids, f.GPU)
	}
	var asked []int
	err := reaches(ids, 1, 1, all, oneHost, func(own, peer int) (bool, error) {
		asked = append(asked, own, peer)
		return peer != 2, nil
	})
	want := "rank 1 on GPU-01000000-0000-0000-0000-0000000000ff (0000:1b:00.0) cannot address the memory of rank 2 on GPU-02000000-"
	if !errors.Is(err, dist.ErrUnsupported) || !strings.Contains(err.Error(), want) || !slices.Equal(asked, []int{1, 0, 1, 2}) {
		t.Errorf("error %v, asked %v", err, asked)
	}
	if err := reaches(ids, 0, 0, all, oneHost, func(int, int) (bool, error) { return true, nil }); err != nil {
		t.Error(err)
	}
	broken := errors.New("the driver is gone")
	if err := reaches(ids, 0, 0, all, oneHost, func(int, int) (bool, error) { return false, broken }); !errors.Is(err, broken) {
		t.Error(err)
	}
}
