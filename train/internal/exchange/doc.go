// Package exchange lets the ranks of a training exchange small values of the host: losses,
// settings, texts, digests. It works between ranks of the host and between GPUs.
package exchange
