package launch

// The values of SpawnConfig.Bind.
const (
	BindNone = "none" // ranks move between the cores that the launcher may use
	BindCore = "core" // each rank has cores of its own
)
