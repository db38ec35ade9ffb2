package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/symgrad/symgrad/config"
	"github.com/symgrad/symgrad/dist/launch"
)

// newConfigCommand returns symgrad config, which shows, explains and checks settings.
func newConfigCommand() *cobra.Command {
	cmd := newGroup("config", "Show, explain and check the settings of a run",
		newConfigShowCommand(), newConfigKeysCommand(), newConfigValidateCommand(), newConfigHashCommand())
	cmd.Long = cmd.Short + `.

Sources of a value, from lowest to highest priority: the default, the file of --config,
the environment (SYMGRAD_RUN_SEED for run.seed), --set.`
	return cmd
}

func newConfigShowCommand() *cobra.Command {
	source, format := newSource(), formatFlag{allowed: []string{"yaml", "table", "json"}, value: "yaml"}
	cmd := &cobra.Command{
		Use:   "show",
		Short: "Print every value and its source",
		Args:  usageArgs(noArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, origins, err := loadSettings(*source)
			if err != nil {
				return err
			}
			var out []byte
			switch format.value {
			case "table":
				out = settingsTable(cfg.Settings(origins), launch.Columns(cmd.OutOrStdout()))
			case "json":
				if out, err = settingsJSON(cfg, origins); err != nil {
					return err
				}
			default:
				out = cfg.YAML(origins)
			}
			return write(cmd.OutOrStdout(), out)
		},
	}
	addSourceFlags(cmd, source)
	format.addTo(cmd)
	return cmd
}

func newConfigKeysCommand() *cobra.Command {
	format := formatFlag{allowed: []string{"table", "markdown"}, value: "table"}
	cmd := &cobra.Command{
		Use:   "keys [WORD...]",
		Short: "Print settings with type, default and meaning",
		Long: `Print settings with type, default and meaning: all, or those with every WORD in their
names. If no name matches, names and meanings are searched.`,
		Example: `  symgrad config keys
  symgrad config keys optim.lr
  symgrad config keys loss`,
		RunE: func(cmd *cobra.Command, words []string) error {
			keys, err := keysWith(config.Keys(), words)
			if err != nil {
				return err
			}
			if format.value == "markdown" {
				return write(cmd.OutOrStdout(), keysMarkdown(keys))
			}
			return write(cmd.OutOrStdout(), keysTable(keys, launch.Columns(cmd.OutOrStdout())))
		},
		ValidArgsFunction: func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
			var names []string
			for _, k := range config.Keys() {
				names = append(names, cobra.CompletionWithDesc(k.Name, k.Help))
			}
			return names, cobra.ShellCompDirectiveNoFileComp
		},
	}
	format.addTo(cmd)
	return cmd
}

func newConfigValidateCommand() *cobra.Command {
	var source config.Source // without the environment: only files are checked
	cmd := &cobra.Command{
		Use:   "validate FILE...",
		Short: "Check files, without the environment",
		// Names of this command in other programs.
		SuggestFor: []string{"check", "verify", "lint", "test"},
		Long: `Check files, without the environment.

Exit codes: 0 all files are valid, 1 one is not, 2 invalid command line.`,
		Args: usageArgs(cobra.MinimumNArgs(1)),
		RunE: func(cmd *cobra.Command, files []string) error {
			var errs []error
			for _, file := range files {
				source.File = file
				cfg, _, err := config.Load(source)
				if err == nil {
					err = write(cmd.OutOrStdout(), fmt.Appendf(nil, "%s: ok, hash %s\n", file, cfg.Hash()))
				}
				errs = append(errs, err)
			}
			return errors.Join(errs...)
		},
		ValidArgsFunction: completeYAML,
	}
	return cmd
}

func newConfigHashCommand() *cobra.Command {
	source, canonical := newSource(), false
	cmd := &cobra.Command{
		Use:   "hash",
		Short: "Print the hash that ranks compare",
		Args:  usageArgs(noArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, _, err := loadSettings(*source)
			if err != nil {
				return err
			}
			if canonical {
				return write(cmd.OutOrStdout(), []byte(cfg.Canonical()))
			}
			return write(cmd.OutOrStdout(), []byte(cfg.Hash()+"\n"))
		},
	}
	addSourceFlags(cmd, source)
	cmd.Flags().BoolVar(&canonical, "canonical", false, "print the text that is hashed instead")
	return cmd
}

// newSource returns a source with the environment; flags add the rest.
func newSource() *config.Source {
	return &config.Source{Env: config.Environ(), Reserved: launch.Variables()}
}

// loadSettings is config.Load for commands other than validate. Errors: usageError.
func loadSettings(source config.Source) (*config.Config, *config.Origins, error) {
	cfg, origins, err := config.Load(source)
	if err != nil {
		return nil, nil, usageError{err}
	}
	return cfg, origins, nil
}

// addSourceFlags adds --config and --set to cmd, with completion.
func addSourceFlags(cmd *cobra.Command, source *config.Source) {
	source.AddFlags(cmd.Flags())
	complete(cmd, "config", completeYAML)
	complete(cmd, "set", func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		var keys []string
		for _, k := range config.Keys() {
			keys = append(keys, cobra.CompletionWithDesc(k.Name+"=", k.Help))
		}
		return keys, cobra.ShellCompDirectiveNoSpace
	})
}

// completeYAML completes the names of YAML files.
func completeYAML(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	return []string{"yaml", "yml"}, cobra.ShellCompDirectiveFilterFileExt
}

// complete sets how the shell completes a flag of cmd.
func complete(cmd *cobra.Command, flag string, f cobra.CompletionFunc) {
	_ = cmd.RegisterFlagCompletionFunc(flag, f) // errors only for an unknown flag or a second call
}

// formatFlag is --format, which takes one of a few names.
type formatFlag struct {
	allowed []string
	value   string
}

// String returns the chosen name.
func (f *formatFlag) String() string { return f.value }

// Type returns the type of the value in help texts.
func (f *formatFlag) Type() string { return strings.Join(f.allowed, "|") }

// Set sets an allowed name.
func (f *formatFlag) Set(s string) error {
	if !slices.Contains(f.allowed, s) {
		return fmt.Errorf("use %s", strings.Join(f.allowed, ", "))
	}
	f.value = s
	return nil
}

func (f *formatFlag) addTo(cmd *cobra.Command) {
	cmd.Flags().Var(f, "format", "output format")
	complete(cmd, "format", cobra.FixedCompletions(f.allowed, cobra.ShellCompDirectiveNoFileComp))
}
