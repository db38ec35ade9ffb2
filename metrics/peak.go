package metrics

import "strings"

// peaks are dense rates of matrix products in TFLOP/s with sums in f32, without sparsity, from the
// data sheets of NVIDIA. A device is known by the first name whose words its name has.
var peaks = []struct {
	name             string
	bf16, tf32, fp32 float64
}{
	{"H100 PCIe", 756, 378, 51},
	{"H100 NVL", 835, 417, 60},
	{"H100", 989, 494.5, 67}, // SXM5
	{"H200 NVL", 835, 417, 60},
	{"H200", 989, 494.5, 67},
	{"B200", 2250, 1125, 75},
	{"A100", 312, 156, 19.5},
	{"L40S", 362, 183, 91.6},
	{"L4", 121, 60, 30.3},
}

// PeakFLOPS returns the peak rate of matrix products of a GPU, for Config.PeakFLOPS: device is its
// name, as CUDA has it, and precision is fp32, tf32, bf16 or f16.
//
// Shapes/units: FLOP/s of one device. Returns: 0 if it is unknown.
func PeakFLOPS(device, precision string) float64 {
	words := " " + strings.ReplaceAll(device, "-", " ") + " "
	if strings.Contains(words, " MIG ") { // a part of a GPU
		return 0
	}
	for _, p := range peaks {
		if !strings.Contains(words, " "+p.name+" ") {
			continue
		}
		switch precision {
		case "bf16", "f16":
			return p.bf16 * 1e12
		case "tf32":
			return p.tf32 * 1e12
		case "fp32":
			return p.fp32 * 1e12
		}
	}
	return 0
}
