package checkpoint

import (
	"cmp"
	"fmt"
	"io/fs"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// folder is the name of a folder that has, had or will have a checkpoint.
type folder struct {
	name  string
	step  int
	again int  // as in stagingName
	tmp   bool // the name ends in .tmp: unfinished, replaced or being removed

	removed bool // being removed, maybe by a program that died: must not be opened
}

// replacedSuffix ends the name of a checkpoint that another one of the same step replaces.
const replacedSuffix = ".old.tmp"

// removedSuffix ends the name of a checkpoint that is being removed.
const removedSuffix = ".removed.tmp"

// stepName returns the folder name of the checkpoint of a step.
func stepName(step int) string { return fmt.Sprintf("step-%08d", step) }

// stagingName returns the folder name of a save in progress; again is the number of repeats (see
// Saver.repeats).
func stagingName(step int, session string, again int) string {
	name := stepName(step)
	if session != "" {
		name += ".s-" + session
	}
	if again > 0 {
		name += "." + strconv.Itoa(again)
	}
	return name + ".tmp"
}

var (
	folderPattern  = regexp.MustCompile(`^step-(\d{8,19})(\.s-[A-Za-z0-9_-]+|\.old|\.removed)?(?:\.(\d{1,9}))?(\.tmp)?$`)
	sessionPattern = regexp.MustCompile(`^[A-Za-z0-9_-]{0,64}$`)
)

// parseFolder parses the name of a folder; it returns false for other names.
func parseFolder(name string) (folder, bool) {
	match := folderPattern.FindStringSubmatch(name)
	if match == nil || match[2]+match[3] != "" && match[4] == "" {
		return folder{}, false
	}
	again, _ := strconv.Atoi(match[3]) // digits, or empty
	step, err := strconv.Atoi(match[1])
	if err != nil || !strings.HasPrefix(name, stepName(step)) {
		return folder{}, false
	}
	return folder{name: name, step: step, again: again, tmp: match[4] != "", removed: strings.HasSuffix(name, removedSuffix)}, true
}

// folders returns the checkpoint folders in dir, the newest first. Those of one step are in this
// order: the one without .tmp, those being written, the replaced one.
func folders(sys fileSystem, dir string) ([]folder, error) {
	entries, err := sys.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var found []folder
	for _, e := range entries {
		// A link may point to a folder on another disk.
		if f, ok := parseFolder(e.Name()); ok && (e.IsDir() || e.Type()&fs.ModeSymlink != 0) {
			found = append(found, f)
		}
	}
	rank := func(f folder) int {
		switch {
		case !f.tmp:
			return 0
		case strings.HasSuffix(f.name, replacedSuffix):
			return 2
		}
		return 1
	}
	slices.SortFunc(found, func(a, b folder) int {
		return cmp.Or(cmp.Compare(b.step, a.step), cmp.Compare(rank(a), rank(b)), strings.Compare(a.name, b.name))
	})
	return found, nil
}
