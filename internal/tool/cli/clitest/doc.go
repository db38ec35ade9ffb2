// Package clitest provides terminals for tests.
package clitest
