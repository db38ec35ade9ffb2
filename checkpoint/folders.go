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
	again int  // of stagingName
	tmp   bool // being written, left by a program that died, replaced by another of the same step, or being removed

	removed bool // being removed, by a program that may have died: never to be opened
}

// replacedSuffix is the end of the name of a checkpoint that another of the same step is about to
// replace.
const replacedSuffix = ".old.tmp"

// removedSuffix is the end of the name of a checkpoint that is being removed.
const removedSuffix = ".removed.tmp"

// stepName is the folder of the checkpoint of a step.
func stepName(step int) string { return fmt.Sprintf("step-%08d", step) }

// stagingName is the folder where it is written, after so many repeats: see Saver.repeats.
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

// parseFolder is the folder called name; false if it is something else.
func parseFolder(name string) (folder, bool) {
	match := folderPattern.FindStringSubmatch(name)
	if match == nil || match[2]+match[3] != "" && match[4] == "" {
		return folder{}, false
	}
	again, _ := strconv.Atoi(match[3]) // of digits, or none
	step, err := strconv.Atoi(match[1])
	if err != nil || !strings.HasPrefix(name, stepName(step)) {
		return folder{}, false
	}
	return folder{name: name, step: step, again: again, tmp: match[4] != "", removed: strings.HasSuffix(name, removedSuffix)}, true
}

// folders is those in dir, the newest first. Of one step, the one without .tmp comes first, then
// those being written, then the one that was replaced.
func folders(sys fileSystem, dir string) ([]folder, error) {
	entries, err := sys.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var found []folder
	for _, e := range entries {
		// A link may lead to a folder on another disk.
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
