package launch

// handoverFD returns the descriptor at which a rank finds the handover; 0 if there is none.
func (j *job) handoverFD() int {
	if j.handover == nil {
		return 0
	}
	return credentialsFD + 1
}
