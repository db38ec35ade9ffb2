package launch

// The values of SpawnConfig.Bind.
const (
	BindNone = "none" // ranks may use all cores of the launcher
	BindCore = "core" // each rank has cores of its own
)
