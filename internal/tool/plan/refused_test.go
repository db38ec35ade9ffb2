package plan_test

import (
	"testing"

	"github.com/symgrad/symgrad/tensor"
)

func TestErrorFeedbackThatARunWouldRefuseIsTold(t *testing.T) {
	for runs, want := range map[int]bool{1: false, 2: true} {
		j := job(2, 0)
		j.Runs, j.DDP.WireDType, j.DDP.ErrorFeedback = runs, tensor.BF16, true
		for s, st := range newPlan(t, j).Stages {
			if refused := st.Refused != ""; refused != (want && s > 1) {
				t.Errorf("%d runs, stage %d: refused %q", runs, s, st.Refused)
			}
		}
	}
}
