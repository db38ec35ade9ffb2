package main

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
)

func scaleText(line string) (code int, stdout, stderr string) {
	var out, errs bytes.Buffer
	code = execute(newRootCommand(), append([]string{"scale"}, strings.Fields(line)...), &out, &errs)
	return code, out.String(), errs.String()
}

// The report has every algorithm, the meeting and the time until a lost host is named.
func TestScalePredictsManyHosts(t *testing.T) {
	code, stdout, stderr := scaleText("--hosts 128 --ranks 1024 --messages 1000")
	for _, want := range []string{"128 hosts with 8 ranks each", "flat ring", "names of hosts", "*", "~", "all ranks know a lost host after"} {
		if code != exitOK || stderr != "" || !strings.Contains(stdout, want) {
			t.Errorf("want %q, code %d: %s\n%s", want, code, stderr, stdout)
		}
	}
	var r scaleReport
	_, stdout, _ = scaleText("--hosts 3 --json")
	if err := json.Unmarshal([]byte(stdout), &r); err != nil || r.Net.Ranks != 1 || !r.AllReduce[0].Times[0].Simulated {
		t.Errorf("%v: %s", err, stdout)
	}
}

// Invalid flags are one line, and exit code 2.
func TestScaleRefuses(t *testing.T) {
	for line, want := range map[string]string{
		"--hosts 1": "want 2 hosts or more", "--hosts 3 --ranks 4": "multiple of ranks", "--latency 0": "want positive numbers",
		"--bandwidth nan": "want positive numbers", "--bandwidth inf": "want positive, finite numbers", "--hosts 99999": "want 1 to 65536",
	} {
		if code, stdout, stderr := scaleText(line); code != exitUsage || !strings.Contains(stderr, want) || stdout != "" {
			t.Errorf("%s: code %d, %q, want %q", line, code, stderr, want)
		}
	}
}
