package lint

import (
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// Folders of all measurements, and of those that documents cite.
const (
	resultsFolder = "bench/results"
	currentFolder = resultsFolder + "/current"
)

// resultName matches the name of a results file. datedName matches a name with a date; such files
// are in git's history, not in the module.
var (
	resultName = regexp.MustCompile(`bench/results/(?:current/)?[a-z0-9][\w.-]*\.(?:jsonl?|txt)\b`)
	nearName   = regexp.MustCompile(`(?:^|[^\w/])(results/[\w./-]+\.(?:jsonl?|txt))\b`)
	datedName  = regexp.MustCompile(`\b[a-z][\w-]*-20\d\d-\d\d-\d\d[\w-]*(?:\.(?:jsonl?|txt)|/)`)
)

// scriptExtensions lists the endings of sources outside Go whose comments may cite measurements.
var scriptExtensions = []string{".sh", ".py", ".s", ".cu", ".c", ".h"}

func isScript(name string) bool {
	return filepath.Base(name) == "Makefile" || slices.Contains(scriptExtensions, filepath.Ext(name))
}

func isResult(name string) bool { return strings.HasPrefix(name, resultsFolder+"/") }

var resultsRule = Rule{
	Name: "results",
	Why: "README.md or a page of docs/ cites every file of " + currentFolder + ", and no text names " +
		"a results file that does not exist: git keeps the old ones",
	Check: func(m *Module) []Finding {
		var found []Finding
		cited := citedResults(m)
		for _, name := range m.Results {
			switch {
			case path.Dir(name) != currentFolder:
				found = append(found, Finding{name, "is not in " + currentFolder})
			case !cited[name]:
				found = append(found, Finding{name, "is cited by neither README.md nor docs/"})
			}
		}
		for _, d := range slices.Concat(m.Documents, m.Scripts) {
			found = append(found, checkResultNames(m, d)...)
		}
		for _, f := range m.Files {
			for _, group := range f.AST.Comments {
				for _, name := range missingResults(m, group.Text()) {
					found = append(found, f.at(group, "names %s, which does not exist", name))
				}
			}
		}
		return found
	},
}

// citedResults returns the results files that README.md and docs/ link to or name.
func citedResults(m *Module) map[string]bool {
	cited := map[string]bool{}
	for _, d := range m.Documents {
		if d.Name == "README.md" || strings.HasPrefix(d.Name, "docs/") {
			for _, name := range resultName.FindAllString(d.Text, -1) {
				cited[name] = true
			}
		}
	}
	return cited
}

func checkResultNames(m *Module, d Document) []Finding {
	var found []Finding
	for _, name := range missingResults(m, d.Text) {
		found = append(found, Finding{d.Name, "names " + name + ", which does not exist"})
	}
	return found
}

// missingResults returns the names in text of results files that do not exist.
func missingResults(m *Module, text string) []string {
	var names []string
	for _, name := range resultName.FindAllString(text, -1) {
		if !m.exists(name) {
			names = append(names, name)
		}
	}
	for _, match := range nearName.FindAllStringSubmatch(text, -1) {
		if !m.exists("bench/" + match[1]) {
			names = append(names, match[1])
		}
	}
	for _, name := range datedName.FindAllString(text, -1) {
		if !slices.ContainsFunc(names, func(n string) bool { return strings.HasSuffix(n, name) }) {
			names = append(names, name)
		}
	}
	return names
}
