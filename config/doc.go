// Package config defines the settings of a training run: their schema, the sources of their values,
// and a hash by which ranks check that they agree.
//
// Config is a tree of plain structs. It is also the schema: the tags of its fields define each
// setting's key ("run.seed"), meaning, allowed values, and the condition under which it has an
// effect. Load fills it from four sources, each overriding the previous one:
//
//	default     Default()
//	file        YAML, the sections of Config as nested mappings
//	environment SYMGRAD_RUN_SEED for run.seed
//	flag        --set run.seed=7
//
// Load is strict, so that a run starts only if every setting was understood. Errors are: unknown
// and repeated keys; values of the wrong type, out of range, or in conflict; settings that cannot
// have an effect. Load reports all errors at once, each with its location and, for a misspelt key,
// the nearest one:
//
//	3 problems in the configuration:
//	  mnist.yaml:4:3: unknown key "run.max_step": did you mean run.max_steps?
//	  $SYMGRAD_DDP_BUCKET_MB: ddp.bucket_mb: "big" is not a number
//	  --set: optim.lr: -1 is out of range: more than 0
//
// # Values
//
// Text has the same syntax in a file, in the environment and after --set. A duration has a unit
// (2s, 100ms). A list of numbers is [256, 128] or, outside files, 256,128. Booleans are true and
// false. Infinities and NaN are rejected. An empty environment variable counts as unset, as in
// package launch.
//
// A few settings have an effect only with certain values of another setting: optim.momentum needs
// optim.name=momentum. Such a setting without an effect is an error if its source has the same or a
// higher priority than the source of the other setting. A file for momentum therefore still works
// with --set optim.name=adam.
//
// # Hash
//
// Hash covers the settings that must agree on all ranks: the computation, the number of ranks, and
// the communication. It omits settings that may differ between ranks (time limits, file names,
// logging) and settings without an effect. Ranks compare it before the first step. Runs with equal
// hashes compute the same, except that the number of ranks counts only if launch.nproc_per_node
// sets it.
//
// # Changes
//
// A training that resumes from a checkpoint may change settings. Changes lists the changed ones,
// and marks those that would make it a different training: settings with the tag resume:"fixed"
// (model, samples, batches, seed, optimizer rule). Number of ranks, sharding, wire formats and
// length of the run may change.
//
// # Sources
//
// The order of precedence is that of github.com/spf13/viper, which merges the four sources. Viper
// ignores the case of keys, so all keys are lower case. It reports neither locations nor similar
// keys, so go.yaml.in/yaml/v3 reads the file first.
package config
