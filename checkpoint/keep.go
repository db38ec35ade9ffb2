package checkpoint

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
)

// publish gives the whole checkpoint in the folder staging of dir its name. If there is one of the
// same step already it is moved aside first and removed last, so that at every moment one of the
// two is there, under a name that Open looks at.
func publish(sys fileSystem, dir, staging string, step int) error {
	final := filepath.Join(dir, stepName(step))
	replaced := filepath.Join(dir, stepName(step)+replacedSuffix)
	_, err := sys.ReadDir(final)
	there := err == nil
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if there && staging == filepath.Base(replaced) { // what replaced it has rotted
		if err := removeTree(sys, final); err != nil {
			return err
		}
		there = false
	}
	if there {
		if err := removeIfThere(sys, replaced); err != nil {
			return err
		}
		if err := sys.Rename(final, replaced); err != nil {
			return err
		}
	}
	if err := sys.Rename(filepath.Join(dir, staging), final); err != nil {
		return err
	}
	if err := sys.SyncDir(dir); err != nil {
		return err
	}
	if there {
		return removeIfThere(sys, replaced)
	}
	return nil
}

// prune removes checkpoints older than the newest keep ones (0 means none of them), counting from
// that of step, and what was left of saves up to that step and of removals. Later ones stay: they
// are of a run that was resumed from an earlier step. So does what ranks that are ahead write after
// more repeats than again: see Saver.repeats.
func prune(sys fileSystem, dir string, step, again, keep int) error {
	all, err := folders(sys, dir)
	if err != nil {
		return err
	}
	var old []string
	whole := 0
	for _, f := range all {
		path := filepath.Join(dir, f.name)
		switch {
		case f.removed: // the program that removed it has died
			old = append(old, path)
		case f.step > step, f.again > again:
		case f.tmp, keep > 0 && whole >= keep:
			old = append(old, path)
		default:
			if looksWhole(sys, path) == nil {
				whole++
			}
		}
	}
	var errs []error
	for _, path := range slices.Backward(old) { // the oldest first
		errs = append(errs, removeIfThere(sys, path)) // somebody may have removed it meanwhile
	}
	return errors.Join(append(errs, sys.SyncDir(dir))...)
}

// recoverFolders removes what a program that died left in dir. A checkpoint that only lacks its
// name gets it: it may be the only one of its step.
func recoverFolders(sys fileSystem, dir string) error {
	all, err := folders(sys, dir)
	if err != nil {
		return err
	}
	named := map[int]bool{} // the steps of which there is a whole checkpoint
	for _, f := range all { // of one step, those with a name first
		path := filepath.Join(dir, f.name)
		switch {
		case f.removed:
			if err := removeIfThere(sys, path); err != nil {
				return err
			}
		case !f.tmp:
			named[f.step] = looksWhole(sys, path) == nil
		case !named[f.step] && looksWhole(sys, path) == nil:
			removeParts(sys, path)
			if err := publish(sys, dir, f.name, f.step); err != nil {
				return err
			}
			named[f.step] = true
		default:
			if err := removeIfThere(sys, path); err != nil {
				return err
			}
		}
	}
	return nil
}

// removeParts removes what ranks left for rank 0. What stays does no harm.
func removeParts(sys fileSystem, path string) {
	entries, err := sys.ReadDir(path)
	if err != nil {
		return
	}
	for _, e := range entries {
		if filepath.Ext(e.Name()) == partSuffix {
			_ = sys.Remove(filepath.Join(path, e.Name()))
		}
	}
}

// looksWhole checks the manifest of a checkpoint and the sizes of its files, not their content.
func looksWhole(sys fileSystem, path string) error {
	text, err := sys.ReadFile(filepath.Join(path, manifestName))
	if err != nil {
		return err
	}
	m, err := decodeManifest(text)
	if err != nil {
		return err
	}
	for _, f := range m.Files {
		n, err := sys.Size(filepath.Join(path, f.Name))
		if err != nil {
			return err
		}
		if n != f.Bytes {
			return fmt.Errorf("%w: %s has %d B, the manifest says %d", ErrCorrupt, f.Name, n, f.Bytes)
		}
	}
	return nil
}

// removeIfThere is removeTree of a folder that may be gone.
func removeIfThere(sys fileSystem, path string) error {
	if err := removeTree(sys, path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
