package probe

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

const (
	nvrm   = "proc/driver/nvidia/version=NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.159.04  Release Build  (dvs)  Tue\nGCC version:  gcc 13.2.0\n"
	device = "dev/nvidia0="
)

func TestGPUsAreWhatTheDriverSays(t *testing.T) {
	driver := &Driver{
		CUDA: "13.0", Devices: []GPU{{Name: "NVIDIA H200"}, {Index: 1, Name: "NVIDIA H200"}},
		Peers: [][]bool{{true, true}, {true, true}}, Atomics: [][]bool{{true, true}, {true, true}},
	}
	r := roots(nvrm, device, "dev/nvidia1=", "dev/nvidiactl=")
	r.Environ = []string{"CUDA_VISIBLE_DEVICES=0,1"}
	r.Ask = (&answers{know: map[Question]Answer{
		{"cuda-driver", "libcuda.so.1"}: {Loaded: true, Path: "/usr/lib/libcuda.so.580.159.04", Version: "CUDA 13.0", Driver: driver},
	}}).ask
	want := GPUs{
		Driver: Library{Name: "cuda-driver", Path: "/usr/lib/libcuda.so.580.159.04", FoundBy: ByLoader, Version: "CUDA 13.0", Usable: true, Chosen: true, Notes: []string{}},
		Module: "580.159.04", DeviceFiles: []string{"/dev/nvidia0", "/dev/nvidia1"}, Visible: "0,1",
		Devices: driver.Devices, Peers: driver.Peers, Atomics: driver.Atomics,
	}
	got := FindGPUs(t.Context(), r, Options{})
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if !got.AllPeers() {
		t.Error("every GPU reaches every other, and AllPeers denies it")
	}
	got.Peers[1][0] = false
	if got.AllPeers() {
		t.Error("GPU 1 does not reach GPU 0, and AllPeers denies it")
	}
}

func TestDriverThatDoesNotWorkIsExplainedByTheSystem(t *testing.T) {
	const lib = "usr/lib/x86_64-linux-gnu/libcuda.so.1="
	for _, tt := range []struct {
		name    string
		files   []string
		visible string
		want    string
	}{
		{"nothing", nil, "", "not found: no libcuda.so.1"},
		{"module alone", []string{nvrm}, "", "not found: no libcuda.so.1; the kernel module is loaded, so the driver's library is missing (a container needs it mounted)"},
		{"library alone", []string{lib}, "", "no good; no kernel module and no /dev/nvidia*: no GPU here, or none given to this container"},
		{"no device files", []string{lib, nvrm}, "", "no good; no /dev/nvidia*: none given to this container"},
		{"hidden", []string{lib, nvrm, device}, "-1", "no good; CUDA_VISIBLE_DEVICES=-1"},
		{"everything there", []string{lib, nvrm, device}, "", "no good"},
	} {
		r := roots(tt.files...)
		r.Ask = (&answers{know: map[Question]Answer{{"cuda-driver", "/usr/lib/x86_64-linux-gnu/libcuda.so.1"}: {Loaded: true, Problem: "no good"}}}).ask
		if tt.visible != "" {
			r.Environ = []string{"CUDA_VISIBLE_DEVICES=" + tt.visible}
		}
		got := FindGPUs(t.Context(), r, Options{})
		if got.Driver.Problem != tt.want || got.Driver.Usable || got.Devices == nil || got.DeviceFiles == nil || got.Peers == nil {
			t.Errorf("%s: %+v, want %q", tt.name, got, tt.want)
		}
	}
}

func TestModuleVersionIsReadFromBothKindsOfModule(t *testing.T) {
	for text, want := range map[string]string{
		"NVRM version: NVIDIA UNIX x86_64 Kernel Module  470.57.02  Tue Jul 13 16:14:05 UTC 2021\n": "470.57.02",
		"NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.95.05  Release Build\n":       "580.95.05",
		"something else 1.2\n": "",
		"":                     "",
	} {
		if got := moduleVersion(text); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}
