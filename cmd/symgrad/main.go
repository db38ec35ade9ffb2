// Command symgrad starts and inspects data-parallel training: see symgrad --help.
package main

import "os"

func main() { os.Exit(execute(newRootCommand(), os.Args[1:], os.Stdout, os.Stderr)) }
