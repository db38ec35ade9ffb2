package config

import (
	"math"
	"testing"
	"time"
)

func TestIntervals(t *testing.T) {
	for _, tt := range []struct {
		tag     string
		text    string
		inside  []float64
		outside []float64
	}{
		{"[0,)", "at least 0", []float64{0, 1, math.MaxFloat64}, []float64{-1, -1e-300, math.NaN()}},
		{"(0,)", "more than 0", []float64{1e-300, 1}, []float64{0, -1, math.NaN()}},
		{"(,5]", "at most 5", []float64{5, -1e9}, []float64{5.1, math.NaN()}},
		{"[0,1)", "at least 0 and less than 1", []float64{0, 0.999}, []float64{1, 2, -1, math.Inf(1)}},
		{"(0,1]", "more than 0 and at most 1", []float64{0.1, 1}, []float64{0, 1.1, math.Inf(-1)}},
		{"(0s,1m]", "more than 0s and at most 1m", []float64{1e-9, 60}, []float64{0, 61}},
		{"(,)", "", []float64{0, math.Inf(1)}, []float64{math.NaN()}},
	} {
		v, ok := parseInterval(tt.tag)
		if !ok || v.String() != tt.text {
			t.Errorf("%s: %q, %t, want %q", tt.tag, v, ok, tt.text)
		}
		for _, x := range tt.inside {
			if !v.contains(x) {
				t.Errorf("%v should be in %s", x, tt.tag)
			}
		}
		for _, x := range tt.outside {
			if v.contains(x) {
				t.Errorf("%v should not be in %s", x, tt.tag)
			}
		}
	}
	for _, tag := range []string{"", "a|b", "[0", "[0]", "0,1", "[a,1]", "[0,b)", "[)", "[0,1,2]"} {
		if v, ok := parseInterval(tag); ok {
			t.Errorf("%q means the interval %v", tag, v)
		}
	}
}

func TestDescribe(t *testing.T) {
	for tag, want := range map[string]string{"": "", "a": "a", "a|b": "a or b", "a|b|c": "a, b or c", "[1,)": "at least 1"} {
		if got := describe(tag); got != want {
			t.Errorf("%q: %q, want %q", tag, got, want)
		}
	}
}

func TestCheckSaysWhatIsAllowed(t *testing.T) {
	for _, tt := range []struct {
		key   string
		value any
		want  string // "" means that the value is right
	}{
		{"comm.backend", "shm", ""},
		{"comm.backend", "shn", `unknown "shn": did you mean shm? (auto, shm, mpi, ucx, sim, cuda, nccl or nvshmem)`},
		{"comm.backend", "SHM", `unknown "SHM": did you mean shm? (auto, shm, mpi, ucx, sim, cuda, nccl or nvshmem)`},
		{"comm.backend", "nccl", ""},
		{"comm.backend", "gloo", `unknown "gloo": use auto, shm, mpi, ucx, sim, cuda, nccl or nvshmem`},
		{"comm.backend", "", `unknown "": use auto, shm, mpi, ucx, sim, cuda, nccl or nvshmem`},
		{"run.device", "gpu", `unknown "gpu": did you mean cpu? (auto, cpu or cuda)`},
		{"run.device", "cuda", ""},
		{"run.name", "a\x00", `"a\x00" has an unprintable character`},
		{"run.output_dir", "", ""},
		{"run.seed", int64(-5), ""},
		{"run.eval", false, ""},
		{"run.epochs", -1, "-1 is out of range: at least 0"},
		{"launch.nproc_per_node", 4097, "4097 is out of range: at least 0 and at most 4096"},
		{"optim.lr", 0.0, "0 is out of range: more than 0"},
		{"optim.lr", math.NaN(), "NaN is out of range: more than 0"},
		{"optim.beta1", 1.0, "1 is out of range: more than 0 and less than 1"},
		{"launch.grace", time.Second, ""},
		{"launch.grace", time.Duration(0), "0s is out of range: more than 0s"},
		{"launch.grace", -time.Second, "-1s is out of range: more than 0s"},
		{"model.hidden", []int{}, ""},
		{"model.hidden", []int{4, 0}, "item 2 of the list: 0 is out of range: at least 1"},
	} {
		got := ""
		if err := lookup(tt.key).check(tt.value); err != nil {
			got = err.Error()
		}
		if got != tt.want {
			t.Errorf("%s = %v: %q, want %q", tt.key, tt.value, got, tt.want)
		}
	}
}
