package program

func entropy(p *Program) bool { return false }
