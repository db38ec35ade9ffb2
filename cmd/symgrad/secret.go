package main

import (
	"github.com/spf13/cobra"

	"github.com/symgrad/symgrad/dist/launch"
)

// newSecretCommand returns symgrad secret, which makes the secret of a job on several hosts.
func newSecretCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "secret",
		Short: "Make the secret of a job on several hosts",
		Long: `Make the secret of a job on several hosts, 256 random bits as text.

symgrad run reads it from --secret FILE or from SYMGRAD_SECRET on every host. A file
must be readable only by its owner: set umask 077 before. Anyone with the secret can
join the job, and only they can.`,
		Example: `  (umask 077; symgrad secret > job.secret)
  kubectl create secret generic job --from-literal=secret=$(symgrad secret)`,
		Args: usageArgs(noArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return write(cmd.OutOrStdout(), []byte(launch.NewSecret()+"\n"))
		},
	}
}
