package probe

import (
	"context"
	"strings"
)

// GPUs has the CUDA driver and the devices.
type GPUs struct {
	Driver      Library  `json:"driver"`
	Module      string   `json:"module"`       // version of the kernel module: "580.159.04"; "" if it is not loaded or not visible
	DeviceFiles []string `json:"device_files"` // "/dev/nvidia0"
	Visible     string   `json:"visible"`      // CUDA_VISIBLE_DEVICES, which hides other devices from the driver
	Devices     []GPU    `json:"devices"`
	Peers       [][]bool `json:"peer_access"`  // whether GPU i can address the memory of GPU j
	Atomics     [][]bool `json:"peer_atomics"` // whether it can also do atomic operations there
}

// FindGPUs asks the CUDA driver for the GPUs.
func FindGPUs(ctx context.Context, r Roots, o Options) GPUs {
	p, _ := productByName("cuda-driver")
	libs, answers := search(ctx, r, o, []product{p})
	g := GPUs{
		Driver: libs[0], Module: moduleVersion(r.text("/proc/driver/nvidia/version")), DeviceFiles: r.glob("/dev/nvidia[0-9]*"),
		Visible: r.variable("CUDA_VISIBLE_DEVICES"), Devices: []GPU{}, Peers: [][]bool{}, Atomics: [][]bool{},
	}
	if g.DeviceFiles == nil {
		g.DeviceFiles = []string{}
	}
	for i, a := range answers {
		if a.Driver != nil {
			g.Driver = libs[i]
			g.Devices = append(g.Devices, a.Driver.Devices...)
			g.Peers = append(g.Peers, a.Driver.Peers...)
			g.Atomics = append(g.Atomics, a.Driver.Atomics...)
			break
		}
	}
	if !g.Driver.Usable {
		g.Driver.Problem += g.why()
	}
	return g
}

// why returns a further clause on the cause if the driver does not work.
func (g GPUs) why() string {
	switch {
	case g.Driver.Path == "" && g.Module == "" && len(g.DeviceFiles) == 0:
		return "" // no sign of a GPU
	case g.Driver.Path == "":
		return "; the kernel module is loaded, so the driver's library is missing (a container needs it mounted)"
	case g.Module == "" && len(g.DeviceFiles) == 0:
		return "; no kernel module and no /dev/nvidia*: no GPU here, or none given to this container"
	case len(g.DeviceFiles) == 0:
		return "; no /dev/nvidia*: none given to this container"
	case g.Visible != "":
		return "; CUDA_VISIBLE_DEVICES=" + g.Visible
	}
	return ""
}

// moduleVersion returns the version in "NVRM version: NVIDIA UNIX x86_64 Kernel Module 580.159.04
// Tue ..." or "... Open Kernel Module for x86_64 580.95.05 ...".
func moduleVersion(text string) string {
	line := firstLine(text)
	if !strings.HasPrefix(line, "NVRM version:") {
		return ""
	}
	for _, word := range strings.Fields(line) {
		if strings.Count(word, ".") > 0 && strings.Trim(word, "0123456789.") == "" {
			return word
		}
	}
	return ""
}

// AllPeers reports whether every GPU can address the memory of every other.
func (g GPUs) AllPeers() bool {
	for _, row := range g.Peers {
		for _, yes := range row {
			if !yes {
				return false
			}
		}
	}
	return true
}
