// Package asym avoids waits for cache lines that another core has. It has a store that publishes
// without a fence, a mutex unlocked by such a store, and hints to claim lines before writes and to
// demote them afterwards.
package asym
