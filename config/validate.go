package config

import (
	"fmt"
	"net"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Validate reports all errors in the values of c. Settings without an effect may have any value.
// Errors: *Error. Its problems name settings but no origins, which only Load knows.
func (c *Config) Validate() error { return asError(c.invalid()) }

// invalid returns the settings that are invalid by themselves, in the order of Config, then the
// conflicting ones.
func (c *Config) invalid() []Problem {
	var problems []Problem
	bad := map[string]bool{}
	for _, f := range schema() {
		if !f.only.holds(c) {
			continue
		}
		if err := f.check(f.get(c)); err != nil {
			problems = append(problems, Problem{Key: f.key, Text: err.Error()})
			bad[f.key] = true
		}
	}
	for _, p := range c.conflicts() {
		if !slices.ContainsFunc(append(p.with, p.Key), func(key string) bool { return bad[key] }) {
			problems = append(problems, p)
		}
	}
	return problems
}

// rules collects violated rules.
type rules []Problem

// require records a problem of key, which depends on the settings with, unless ok.
func (r *rules) require(ok bool, key string, with []string, text string, args ...any) {
	if !ok {
		*r = append(*r, Problem{Key: key, Text: fmt.Sprintf(text, args...), with: with})
	}
}

// conflicts checks the rules that in-tags cannot express: syntax of values, and conflicts between
// settings.
func (c *Config) conflicts() []Problem {
	var r rules
	c.checkRun(&r)
	c.checkOptim(&r)
	r.require(c.Launch.Master == "" || isHostPort(c.Launch.Master), "launch.master", nil,
		"%q is not host:port: write one such as 127.0.0.1:29500", c.Launch.Master)
	r.require(c.Model.Name != "cnn" || len(c.Model.Channels) > 0, "model.channels", []string{"model.name"},
		"a cnn needs at least one convolution")
	r.require(c.Model.Name != "cnn" || c.Model.Kernel%2 == 1, "model.kernel", []string{"model.name"},
		"%d is even, which changes the size of images: use an odd number", c.Model.Kernel)
	attends := slices.Contains([]string{"gpt2", "llama"}, c.Model.Name) && c.Model.Pretrained == ""
	r.require(!attends || c.Model.Heads > 0 && c.Model.Width%c.Model.Heads == 0, "model.heads", []string{"model.name", "model.width"},
		"%d heads do not divide the width, %d", c.Model.Heads, c.Model.Width)
	r.require(c.Model.Name != "llama" || c.Model.KVHeads == 0 || c.Model.Heads%c.Model.KVHeads == 0, "model.kv_heads", []string{"model.name", "model.heads"},
		"%d heads of keys and values do not divide the %d heads", c.Model.KVHeads, c.Model.Heads)
	r.require(c.Data.Path != "", "data.path", nil, "is empty: set the folder with the data")
	r.require(c.Data.AccumSteps <= c.Data.GlobalBatch, "data.accum_steps", []string{"data.global_batch"},
		"%d parts of a batch of %d samples: use at most as many parts as samples", c.Data.AccumSteps, c.Data.GlobalBatch)
	r.require(!c.Data.DropLast || c.Data.Limit == 0 || c.Data.Limit >= c.Data.GlobalBatch, "data.limit", []string{"data.drop_last", "data.global_batch"},
		"%d samples are less than a batch of %d, which data.drop_last skips: no step remains", c.Data.Limit, c.Data.GlobalBatch)
	blas := c.CPU.BLAS
	r.require(blas == "auto" || blas == "gonum" || strings.Contains(blas, "/") || strings.Contains(blas, ".so"), "cpu.blas", nil,
		"unknown library %q: use auto, gonum, a soname such as libopenblas.so.0, or a path", blas)
	c.checkDevices(&r)
	c.checkTrace(&r)
	return r
}

// checkDevices compares the backend with the device of the tensors, and checks the names of
// libraries.
func (c *Config) checkDevices(r *rules) {
	switch name := c.Comm.Backend; name {
	case "auto":
	case "shm", "mpi", "ucx", "sim":
		r.require(c.Run.Device != "cuda", "comm.backend", []string{"run.device"},
			"%s is between ranks of the host, and run.device is cuda: use cuda, nccl, nvshmem or auto", name)
	default:
		r.require(c.Run.Device != "cpu", "comm.backend", []string{"run.device"},
			"%s is between GPUs, and run.device is cpu: use shm, sim or auto", name)
	}
	r.require(c.Run.Machine != "tape" || c.Run.Device != "cuda", "run.machine", []string{"run.device"},
		"tape runs on the host, and run.device is cuda: use compiled")
	for _, lib := range []struct{ key, file, example string }{
		{"gpu.driver", c.GPU.Driver, "libcuda.so.1"},
		{"gpu.nvrtc", c.GPU.NVRTC, "libnvrtc.so.13"},
		{"gpu.nccl", c.GPU.NCCL, "libnccl.so.2"},
		{"gpu.nvshmem", c.GPU.NVSHMEM, "libnvshmem_host.so.3"},
	} {
		r.require(lib.file == "" || strings.Contains(lib.file, "/") || strings.Contains(lib.file, ".so"), lib.key, nil,
			"invalid library %q: use a soname such as %s, or a path", lib.file, lib.example)
	}
}

func (c *Config) checkRun(r *rules) {
	name := c.Run.Name
	r.require(name != "" && name != "." && name != ".." && !strings.ContainsAny(name, `/\`), "run.name", nil,
		"%q cannot be the name of a folder", name)
	r.require(c.Run.MaxSteps != 0 || c.Run.Epochs != 0, "run.epochs", []string{"run.max_steps"},
		"the run would never end: set run.epochs or run.max_steps")
	r.require(c.Run.Resume != "", "run.resume", nil, "is empty: use auto, none or the path of a checkpoint")
}

func (c *Config) checkOptim(r *rules) {
	o, s := c.Optim, c.Optim.Schedule
	if _, _, err := o.Scale(); err != nil {
		r.require(false, "optim.loss_scale", nil, "%v", err)
	}
	r.require(isFloat32(o.ClipValue), "optim.clip_value", nil, "%v is out of the range of float32, the dtype of gradients: use a bound such as 1, or 0 for none", o.ClipValue)
	r.require(!lookup("optim.eps").only.holds(c) || isFloat32(o.Eps), "optim.eps", []string{"optim.name"},
		"%v is out of the range of float32, the dtype of gradients: use for example 1e-08", o.Eps)
	for _, p := range o.NoDecayPatterns() {
		_, err := path.Match(p, "")
		r.require(err == nil && p != "", "optim.no_decay", nil, "invalid pattern %q: use for example *.bias", p)
	}
	if s.Name != "cosine" {
		return
	}
	r.require(s.MinLR <= o.LR, "optim.schedule.min_lr", []string{"optim.lr"},
		"%v is above the learning rate, %v", s.MinLR, o.LR)
	// A run that run.max_steps ends early may end within the warm-up.
	r.require(s.TotalSteps == 0 || s.WarmupSteps < s.TotalSteps, "optim.schedule.warmup_steps", []string{"optim.schedule.total_steps"},
		"%d steps of warm-up leave no step of %d for the cosine (optim.schedule.total_steps)", s.WarmupSteps, s.TotalSteps)
}

func (c *Config) checkTrace(r *rules) {
	if c.Log.Trace == "" {
		return
	}
	r.require(filepath.IsLocal(c.Log.Trace), "log.trace", nil, "%q is outside the output folder: use a file name", c.Log.Trace)
	own := filepath.Clean(c.Log.Trace)
	r.require(own != ".", "log.trace", nil, "%q is the output folder itself: use a file name", c.Log.Trace)
	first, _, _ := strings.Cut(filepath.ToSlash(own), "/")
	r.require(!slices.Contains([]string{FileName, SummaryName, MetricsName, TableName, EventsFolder}, first), "log.trace", nil, "%q is a file that the run writes itself: use another name", first)
	c.checkTraceFolder(r, own)
	t := c.Log.TraceSteps
	if len(t) != 2 || t[0] > t[1] {
		r.require(false, "log.trace_steps", nil, "%s is not a first and a last step: write them as [10, 19]", format(t))
		return
	}
	r.require(c.Run.MaxSteps == 0 || t[0] < c.Run.MaxSteps, "log.trace_steps", []string{"run.max_steps"},
		"the timeline starts at step %d, but the run ends after %d (run.max_steps)", t[0], c.Run.MaxSteps)
}

// checkTraceFolder rejects a timeline, own, that is a folder of the run. Otherwise the error would
// only show after the training.
func (c *Config) checkTraceFolder(r *rules, own string) {
	logs := choose(c.Launch.NprocPerNode > 0, c.LogDir(), "")
	for _, f := range []struct{ key, path string }{{"launch.log_dir", logs}, {"checkpoint.dir", c.Checkpoint.Dir}} {
		in, err := filepath.Rel(filepath.Join(c.OutputDir(), own), f.path)
		r.require(f.path == "" || own == "." || err != nil || !filepath.IsLocal(in), "log.trace", []string{f.key, "run.output_dir"},
			"%q is a folder of the run (%s): use a file name", own, f.key)
	}
}

func isHostPort(s string) bool {
	host, port, err := net.SplitHostPort(s)
	if err != nil || host == "" {
		return false
	}
	n, err := strconv.ParseUint(port, 10, 16)
	return err == nil && n > 0
}

// ineffective returns the settings that have no effect, if they were set at the same or a higher
// level than the setting that decides it.
func (c *Config) ineffective(o *Origins) []Problem {
	var problems []Problem
	if c.Optim.NoDecay != "" && c.Optim.WeightDecay == 0 && o.Origin("optim.weight_decay").Level == LevelDefault {
		problems = append(problems, Problem{
			Key: "optim.no_decay", Text: "has no effect, because optim.weight_decay is 0: remove it, or set optim.weight_decay",
		})
	}
	for _, f := range schema() {
		set, decided := o.Origin(f.key).Level, o.Origin(f.only.other).Level
		if set == LevelDefault || set < decided || f.only.holds(c) {
			continue
		}
		if other := lookup(f.only.other); other.check(other.get(c)) != nil {
			continue // an error by itself
		}
		problems = append(problems, Problem{
			Key:  f.key,
			Text: fmt.Sprintf("has no effect, because %s: remove it (it is used when %s)", f.only.unmet(c), f.only),
			with: []string{f.only.other},
		})
	}
	return problems
}
