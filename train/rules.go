package train

import (
	"errors"
	"path"
	"strings"

	"gorgonia.org/gorgonia"

	"github.com/symgrad/symgrad/config"
	"github.com/symgrad/symgrad/internal/settings"
	"github.com/symgrad/symgrad/internal/tool/cli"
)

// checkRules reports conflicting settings and flags.
func (o *options) checkRules() error {
	c := o.cfg
	if err := settings.Check(c); err != nil {
		return cli.AsUsage(err)
	}
	if o.timing.kept && c.Optim.LossScale == "dynamic" {
		return cli.Usage("--kept: optim.loss_scale=dynamic changes an input; use a number")
	}
	if o.verify {
		return o.checkVerify()
	}
	return nil
}

// checkNames rejects patterns of optim.no_decay that match no parameter. They are typing errors,
// and would change the training.
func checkNames(c config.Optim, params gorgonia.Nodes) error {
	for _, pattern := range c.NoDecayPatterns() {
		names, found := make([]string, len(params)), pattern == config.Vectors
		for i, p := range params {
			names[i] = p.Name()
			match, _ := path.Match(pattern, p.Name()) // config.Load has checked the pattern
			found = found || match
		}
		if !found {
			return cli.Usage("optim.no_decay: %q matches no parameter: use names of %s", pattern, strings.Join(names, ", "))
		}
	}
	return nil
}

var errVerify = errors.New("--verify compares the gradient of all ranks with that of one")

// checkVerify rejects --verify for settings under which the gradients need not be equal.
func (o *options) checkVerify() error {
	c := o.cfg
	switch {
	case c.DDP.LocalSteps > 1:
		return cli.Usage("%w, and with ddp.local_steps=%d gradients are not exchanged", errVerify, c.DDP.LocalSteps)
	case c.DDP.Hook != "none":
		return cli.Usage("%w, and ddp.hook=%s does not send all of it", errVerify, c.DDP.Hook)
	}
	return nil
}
