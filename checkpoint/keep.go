package checkpoint

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
)

// publish renames the whole checkpoint in folder staging of dir. An existing checkpoint of the same
// step is renamed first and removed last, so that at every moment one of the two has a name that
// Open reads.
func publish(sys fileSystem, dir, staging string, step int) error {
	final := filepath.Join(dir, stepName(step))
	replaced := filepath.Join(dir, stepName(step)+replacedSuffix)
	_, err := sys.ReadDir(final)
	there := err == nil
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if there && staging == filepath.Base(replaced) { // the replacement is damaged
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

// prune removes checkpoints older than the newest keep ones (0 keeps all), counting from that of
// step. It also removes the remains of earlier saves and of removals. Later steps stay: they belong
// to a run that was resumed from an earlier step. Folders with more repeats than again stay too:
// ranks that are ahead write them (see Saver.repeats).
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
		errs = append(errs, removeIfThere(sys, path)) // another program may have removed it meanwhile
	}
	return errors.Join(append(errs, sys.SyncDir(dir))...)
}

// recoverFolders removes the remains of dead programs from dir. It renames a checkpoint that lacks
// only its name, because it may be the only one of its step.
func recoverFolders(sys fileSystem, dir string) error {
	all, err := folders(sys, dir)
	if err != nil {
		return err
	}
	named := map[int]bool{} // steps with a whole checkpoint
	for _, f := range all { // of one step, the named one first
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

// removeParts removes the parts that ranks wrote for rank 0. A part that remains does no harm.
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

// looksWhole checks the manifest of a checkpoint and the sizes of its files, but not their content.
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

// removeIfThere is removeTree for a folder that may be missing.
func removeIfThere(sys fileSystem, path string) error {
	if err := removeTree(sys, path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
