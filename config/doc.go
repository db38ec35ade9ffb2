// Package config is the settings of a training run: their schema, where their values come from, and
// proof that all ranks have the same ones.
//
// Config is one tree of plain structs. It is the schema: the tags of its fields give every setting
// its key ("run.seed"), its meaning, its allowed values, and the condition of its effect. Load
// fills it from four sources, each overriding the previous one:
//
//	default     Default()
//	file        YAML, the sections of Config as nested mappings
//	environment SYMGRAD_RUN_SEED for run.seed
//	flag        --set run.seed=7
//
// A run that starts is a run whose every setting was understood. So Load is strict: unknown and
// repeated keys, values of the wrong type, out of range, or at odds with each other, and settings
// that cannot have an effect are errors. It reports all of them at once, each with its place and,
// for a misspelt key, the nearest one:
//
//	3 problems in the configuration:
//	  mnist.yaml:4:3: unknown key "run.max_step": did you mean run.max_steps?
//	  $SYMGRAD_DDP_BUCKET_MB: ddp.bucket_mb: "big" is not a number
//	  --set: optim.lr: -1 is out of range: more than 0
//
// # Values
//
// Text means the same in a file, in the environment and after --set. A duration has a unit (2s,
// 100ms). A list of numbers is [256, 128] or, outside of files, 256,128. Booleans are true and
// false. Infinities and NaN are refused. An empty environment variable is none, as in package
// launch.
//
// A few settings have an effect only with a certain value of another one: optim.momentum needs
// optim.name=momentum. A setting without effect is an error if it was set in the same source as the
// other, or in a later one. So a file for momentum still works after --set optim.name=adam.
//
// # Hash
//
// Hash covers the settings that must be equal on all ranks of a run: the computation, the number of
// ranks, and the communication. It leaves out settings that may differ between ranks (time limits,
// file names, logging) and settings without effect. Ranks compare it before the first step. Two
// runs with equal hashes compute the same; the number of ranks counts only if launch.nproc_per_node
// sets it.
//
// # Changes
//
// A training that resumes from a checkpoint may have other settings. Changes lists them, and marks
// those that make it another training: settings with the tag resume:"fixed" (the model, the samples
// and their batches, the seed, the rule of the optimizer). The number of ranks, sharding, wire
// dtype and length of the run may change.
//
// # Sources
//
// The precedence is that of github.com/spf13/viper, which merges the four places. It folds the case
// of keys, so that all of ours are lower case, and knows neither places nor near misses, so that
// the file is read by go.yaml.in/yaml/v3 first.
package config
