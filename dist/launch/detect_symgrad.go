package launch

import (
	"slices"
	"strings"
)

// The variables of this project's launcher. They are documented in the package comment.
const (
	rankVar      = "SYMGRAD_RANK"
	sizeVar      = "SYMGRAD_WORLD_SIZE"
	localRankVar = "SYMGRAD_LOCAL_RANK"
	localSizeVar = "SYMGRAD_LOCAL_WORLD_SIZE"
	jobVar       = "SYMGRAD_JOB"
	masterVar    = "SYMGRAD_MASTER"
	storeFDVar   = "SYMGRAD_STORE_FD"
	columnsVar   = "SYMGRAD_COLUMNS"
	handoverVar  = "SYMGRAD_HANDOVER_FD"
	boundVar     = "SYMGRAD_BOUND"
	restartsVar  = "SYMGRAD_RESTARTS"
	marksVar     = "SYMGRAD_MARKS"
	hostVar      = "SYMGRAD_HOST" // set by users; launchers pass it on

	nodeVar       = "SYMGRAD_NODE"
	nodesVar      = "SYMGRAD_NODES"
	secretVar     = "SYMGRAD_SECRET"
	secretFileVar = "SYMGRAD_SECRET_FILE"
)

// maxColumns bounds the width of a terminal.
const maxColumns = 1 << 16

// Variables returns the names of this package's SYMGRAD_ variables, which are not settings.
func Variables() []string {
	return []string{
		rankVar, sizeVar, localRankVar, localSizeVar, nodeVar, nodesVar, jobVar, masterVar, storeFDVar, columnsVar, handoverVar, boundVar,
		secretVar, secretFileVar, restartsVar, marksVar, hostVar,
	}
}

func detectSymgrad(v vars) (Env, bool, error) {
	names := rankVars{rankVar, sizeVar, localRankVar, localSizeVar}
	if !v.any(append(names.all(), storeFDVar)...) {
		return Env{}, false, nil
	}
	e, err := v.ranks(names)
	if err != nil {
		return Env{}, false, err
	}
	e.Launcher = Symgrad
	if err := v.nodes(&e, nodeVar, nodesVar); err != nil {
		return Env{}, false, err
	}
	if v.any(masterVar) {
		if !validAddress(v[masterVar]) {
			return Env{}, false, v.wrong(masterVar, "host:port, port 1 to 65535")
		}
		e.Master = v[masterVar]
	}
	if v.any(storeFDVar) {
		if e.StoreFD, err = v.number(storeFDVar, "an inherited file descriptor", 3, 1<<20); err != nil {
			return Env{}, false, err
		}
		for _, name := range []string{masterVar, jobVar} {
			if !v.any(name) {
				return Env{}, false, v.wrong(name, "the launcher's value, because %s=%d is set", storeFDVar, e.StoreFD)
			}
		}
	}
	if v.any(boundVar) {
		if v[boundVar] != BindCore {
			return Env{}, false, v.wrong(boundVar, "%s, as the launcher sets it", BindCore)
		}
		e.Bound = true
	}
	if v.any(handoverVar) {
		if e.HandoverFD, err = v.number(handoverVar, "an inherited file descriptor", 3, 1<<20); err != nil {
			return Env{}, false, err
		}
	}
	if v.any(columnsVar) {
		if e.Columns, err = v.number(columnsVar, "the width of a terminal", 1, maxColumns); err != nil {
			return Env{}, false, err
		}
	}
	return e, true, nil
}

// isOwnVariable reports whether s is "name=value" of one of Variables.
func isOwnVariable(s string) bool {
	name, _, _ := strings.Cut(s, "=")
	return slices.Contains(Variables(), name)
}
