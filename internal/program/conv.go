package program

func convolutions(p *Program) bool { return false }
