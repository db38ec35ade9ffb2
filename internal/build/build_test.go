package build

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"strings"
	"testing"
)

func TestCommitIsTheFirstThatIsKnown(t *testing.T) {
	const a, b = "0123456789abcdef0123456789abcdef01234567", "89abcdef0123456789abcdef0123456789abcdef"
	vcs := []debug.BuildSetting{{Key: "vcs.revision", Value: b}, {Key: "vcs.modified", Value: "true"}}
	module := func(v string) *debug.BuildInfo { return &debug.BuildInfo{Main: debug.Module{Version: v}} }
	for _, test := range []struct {
		name, stamp string
		info        *debug.BuildInfo
		archived    string
		want        string
	}{
		{"make", a[:12], &debug.BuildInfo{Settings: vcs}, "$Format:%H$\n", a[:12]},
		{"make, with changes", a[:12] + "-dirty", &debug.BuildInfo{}, "$Format:%H$\n", a[:12] + "-dirty"},
		{"go build", "", &debug.BuildInfo{Settings: vcs}, "$Format:%H$\n", b[:12] + "-dirty"},
		{"go install of a commit", "", module("v0.0.0-20261127100000-0123456789ab"), "$Format:%H$\n", "0123456789ab"},
		{"go install of a commit after a release", "", module("v1.2.4-0.20261127100000-0123456789ab"), "", "0123456789ab"},
		{"go build with changes", "", module("v1.2.4-0.20261127100000-0123456789ab+dirty"), "", "0123456789ab"},
		{"tarball", "", module("(devel)"), a + "\n", a[:12]},
		{"release, which has its version", "", module("v1.2.3"), "$Format:%H$\n", ""},
		{"a stamp without git", "unknown", &debug.BuildInfo{}, "", ""},
	} {
		if got := commitOf(test.stamp, test.info, test.archived); got != test.want {
			t.Errorf("%s: got %q, want %q", test.name, got, test.want)
		}
	}
	if l := Line(); !strings.Contains(l, "(commit ") || !strings.Contains(l, " go1.") {
		t.Errorf("the line is %q", l)
	}
}

// A tarball has the commit: git archive fills it in.
func TestArchiveHasTheCommit(t *testing.T) {
	git := func(dir string, args ...string) string {
		t.Helper()
		cmd := exec.Command("git", args...)
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL="+os.DevNull, "GIT_CONFIG_SYSTEM="+os.DevNull)
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("git %v: %v\n%s", args, err, out)
		}
		return strings.TrimSpace(string(out))
	}
	if _, err := exec.LookPath("git"); err != nil {
		t.Skip("no git")
	}
	dir := t.TempDir()
	for name, to := range map[string]string{"../../.gitattributes": ".gitattributes", "commit.txt": "internal/build/commit.txt"} {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, to)), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, to), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	git(dir, "init", "-q")
	git(dir, "add", ".")
	git(dir, "-c", "user.name=x", "-c", "user.email=x@example.com", "commit", "-qm", "x")
	head := git(dir, "rev-parse", "HEAD")
	if tar := git(dir, "archive", "--format=tar", "HEAD", "internal/build/commit.txt"); !strings.Contains(tar, head) {
		t.Errorf("the archive of %s has not got the commit", head)
	}
	if text, err := os.ReadFile("commit.txt"); err != nil || commitOf("", &debug.BuildInfo{}, string(text)) != "" && strings.Contains(string(text), "Format") {
		t.Errorf("the placeholder %q is taken for a commit, %v", text, err)
	}
}
