package launch

// handoverFD returns a rank's descriptor of the handover, or 0.
func (j *job) handoverFD() int {
	if j.handover == nil {
		return 0
	}
	return credentialsFD + 1
}
