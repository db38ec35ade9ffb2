package long

import "testing"

func TestTimesFollowsTheVariable(t *testing.T) {
	for value, want := range map[string]int{"": 3, "0": 3, "1": 100, "yes": 3} {
		t.Setenv(variable, value)
		if got := Times(3, 100); got != want || Enabled() != (want == 100) {
			t.Errorf("%s=%q: %d times, enabled %v", variable, value, got, Enabled())
		}
	}
}
