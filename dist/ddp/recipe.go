package ddp

import (
	"github.com/symgrad/symgrad/dist/ddp/compress"
	"github.com/symgrad/symgrad/internal/drive"
)

// share returns the formula of a rank's factor of its gradients, with so many ranks. c has its
// defaults.
func (c *Config) share(ranks float64) drive.Share {
	s := drive.Share{Times: 1, Over: 1, Divides: c.Average.divides(), Alone: c.LocalSteps > 0, Part: 1}
	switch c.Average {
	case PreMulSum:
		s.Times, s.Part = c.Factor, c.Factor
	case PreDivide:
		s.Times, s.Over = ranks, c.Factor
	}
	return s
}

// actions returns the exchange of a bucket whose hook sends so many messages, 0 without a hook.
// rest is the factor of the sum.
func (c *Config) actions(messages int, rest float64) []drive.Action {
	const bucket = drive.NoMessage
	switch {
	case c.LocalSteps > 0:
		return []drive.Action{{Do: drive.Scale, Message: bucket}}
	case c.VirtualRanks > 0:
		all := []drive.Action{{Do: drive.Pack}, {Do: drive.Trade}, {Do: drive.Add}}
		if c.Stage == 0 {
			all = append(all, drive.Action{Do: drive.Gather})
		}
		return all
	case messages == 0:
		all := []drive.Action{{Do: drive.Sum, Message: bucket}}
		if rest != 1 {
			all = append(all, drive.Action{Do: drive.Decode, Message: bucket, By: rest})
		}
		return all
	}
	var all []drive.Action
	for k := range messages {
		all = append(all, drive.Action{Do: drive.Encode, Message: k}, drive.Action{Do: drive.Sum, Message: k})
	}
	return append(all, drive.Action{Do: drive.Decode, By: rest})
}

// cast returns the cast of the settings, which machines make as steps; nil for none, or for another
// hook.
func (c *Config) cast() *compress.Cast {
	if h, ok := c.hook().(compress.Cast); ok {
		return &h
	}
	return nil
}
