// Package clitest has terminals for tests.
package clitest
