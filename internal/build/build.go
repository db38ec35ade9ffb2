// Package build returns the version and commit from which a program was built.
//
// The commit comes from the first of these sources that has it:
//
//	make build            the linker's flag -X, from git describe
//	go build              the version control stamp of the go command
//	go install ...@main   the pseudo-version of the module, which ends with the commit
//	a tarball             commit.txt, which git archive fills in (.gitattributes, export-subst)
package build

import (
	_ "embed"
	"fmt"
	"regexp"
	"runtime"
	"runtime/debug"
	"strings"
)

// stamp is the commit that the Makefile passes to the linker.
var stamp string

// archived is the commit of a git archive, or a placeholder in a checkout.
//
//go:embed commit.txt
var archived string

// Version returns the version of the program's module, "(devel)" for a build from a checkout.
func Version() string {
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		return info.Main.Version
	}
	return "(devel)"
}

// Commit returns the first 12 digits of the commit, with "-dirty" if files had changed; "" if it is
// unknown.
func Commit() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		info = &debug.BuildInfo{}
	}
	return commitOf(stamp, info, archived)
}

// Line returns "v1.2.3 (commit 0123456789ab, go1.26.8 linux/amd64)".
func Line() string {
	commit := "commit unknown"
	if c := Commit(); c != "" {
		commit = "commit " + c
	}
	return fmt.Sprintf("%s (%s, %s %s/%s)", Version(), commit, runtime.Version(), runtime.GOOS, runtime.GOARCH)
}

// short is the number of printed digits of a commit, as in a pseudo-version.
const short = 12

var (
	hash   = regexp.MustCompile(`^[0-9a-f]{12,64}(-dirty)?$`)
	pseudo = regexp.MustCompile(`[.-]\d{14}-([0-9a-f]{12})(\+|$)`) // https://go.dev/ref/mod#pseudo-versions
)

// commitOf returns the commit from the four sources, in their order.
func commitOf(stamp string, info *debug.BuildInfo, archived string) string {
	vcs, dirty := "", ""
	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision":
			vcs = s.Value
		case s.Key == "vcs.modified" && s.Value == "true":
			dirty = "-dirty"
		}
	}
	if vcs != "" {
		vcs = vcs[:min(short, len(vcs))] + dirty
	}
	version := ""
	if m := pseudo.FindStringSubmatch(info.Main.Version); m != nil {
		version = m[1]
	}
	for _, c := range []string{stamp, vcs, version, strings.TrimSpace(archived)} {
		if !hash.MatchString(c) {
			continue
		}
		digits, changed := strings.CutSuffix(c, "-dirty")
		if digits = digits[:short]; changed {
			digits += "-dirty"
		}
		return digits
	}
	return ""
}
