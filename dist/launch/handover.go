package launch

import "fmt"

// MostHandover is the largest SpawnConfig.Handover in bytes.
const MostHandover = 64 << 20

// Handover returns SpawnConfig.Handover of the launcher that started this rank: data that the
// launcher read once for all ranks. A pipe has only one reader, and a file may change between the
// starts of two ranks.
//
// Returns: nil without a handover. Errors: an inherited descriptor that is no longer open.
func (e Env) Handover() ([]byte, error) {
	if e.HandoverFD == 0 {
		return nil, nil
	}
	data, err := readInherited(e.HandoverFD, MostHandover)
	if err != nil {
		return nil, fmt.Errorf("launch: read the launcher's handover, descriptor %d (%s): %w", e.HandoverFD, handoverVar, err)
	}
	return data, nil
}
