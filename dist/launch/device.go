package launch

import (
	"os"
	"slices"
	"strings"
)

// visibleVar is NVIDIA's variable: the GPUs that the driver shows to a process, in order.
const visibleVar = "CUDA_VISIBLE_DEVICES"

// GPU returns the rank's GPU among the count GPUs that this process sees, in the driver's numbering
// after CUDA_VISIBLE_DEVICES. Ranks of a host take GPUs in turn by their local rank. A rank that
// sees one GPU takes that: launchers such as srun --gpus-per-task=1 show each rank its own. If
// there are fewer GPUs than ranks, some get the same one; package backend, which compares ids, then
// returns an error.
//
// Shapes/units: count is at least 1.
func (e Env) GPU(count int) int { return e.LocalRank % count }

// Visible is the value of CUDA_VISIBLE_DEVICES as the driver reads it: names up to the first
// invalid one.
type Visible struct {
	Set   bool     // the variable is set, maybe empty
	Value string   // as it is set
	Names []string // "0", "GPU-8932f937", "MIG-..."; nil if it is unset, or hides all
	Odd   string   // why the driver shows fewer GPUs than Value names, or ""
}

// FindVisible returns the GPUs that an environment makes visible.
//
// Shapes/units: environ as from os.Environ; the last of several values counts. An empty value,
// unlike that of other variables, counts as set: it hides all GPUs.
func FindVisible(environ []string) Visible {
	var v Visible
	for _, s := range environ {
		if value, ok := strings.CutPrefix(s, visibleVar+"="); ok {
			v.Set, v.Value = true, value
		}
	}
	if strings.TrimSpace(v.Value) == "" {
		return v
	}
	for _, name := range strings.Split(v.Value, ",") {
		name = strings.TrimSpace(name)
		switch {
		case !isGPUName(name):
			v.Odd = "everything after \"" + name + "\", which names no GPU, is hidden"
			return v
		case slices.Contains(v.Names, name):
			v.Names, v.Odd = nil, "\""+name+"\" appears twice, which hides all"
			return v
		}
		v.Names = append(v.Names, name)
	}
	return v
}

// CurrentVisible returns the GPUs that the environment of this process makes visible.
func CurrentVisible() Visible { return FindVisible(os.Environ()) }

// isGPUName reports whether name is a number or the id of a GPU or of a part of one.
func isGPUName(name string) bool {
	if strings.HasPrefix(name, "GPU-") || strings.HasPrefix(name, "MIG-") {
		return true
	}
	_, ok := parseNumber(name)
	return ok && name != ""
}

// Hidden reports whether v hides all GPUs.
func (v Visible) Hidden() bool { return v.Set && len(v.Names) == 0 }

// String returns "CUDA_VISIBLE_DEVICES=0,1", with v.Odd, or that it is not set.
func (v Visible) String() string {
	if !v.Set {
		return visibleVar + " is not set"
	}
	text := visibleVar + "=" + v.Value
	if v.Odd != "" {
		text += " (" + v.Odd + ")"
	}
	return text
}

// libraryVars are options that libraries read only from the environment. NVLink multicast (NVLS)
// stays off: on a host whose fabric is shared it can put every GPU of the host out of service. NCCL
// connects when a communicator is made, not in the first operation, which would then wait for
// peers.
var libraryVars = [...]struct{ name, value string }{
	{"NCCL_NVLS_ENABLE", "0"},
	{"NVSHMEM_DISABLE_NVLS", "1"},
	{"NCCL_RUNTIME_CONNECT", "0"},
}

// SetLibraryVariables sets the options of NCCL and NVSHMEM in the environment of this process, over
// existing values. Call it before either is loaded. NCCL tells hosts apart by Host too, if it is
// set.
//
// Errors: those of os.Setenv.
func (e Env) SetLibraryVariables() error {
	if e.Host != "" {
		if err := os.Setenv("NCCL_HOSTID", e.Host); err != nil {
			return err
		}
	}
	for _, v := range libraryVars {
		if err := os.Setenv(v.name, v.value); err != nil {
			return err
		}
	}
	return nil
}
