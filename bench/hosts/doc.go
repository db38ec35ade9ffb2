// Package hosts measures allreduces over several hosts, which its test makes of this machine:
// network namespaces that a bridge joins. bench/hosts.sh builds the programs, runs the test, and
// compares the results.
package hosts
