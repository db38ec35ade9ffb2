package launch

// CheckMeeting returns the error with which Rendezvous would refuse e's job at once, such as
// several hosts without a secret; nil if its ranks have a place to meet.
func (e Env) CheckMeeting() error {
	if e.Size == 1 || e.StoreFD != 0 {
		return nil
	}
	_, err := e.place()
	return err
}
