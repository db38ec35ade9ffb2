// Package asym has what spares ranks waits for lines of memory that another core has: a store that
// publishes without a fence, a lock that is given back by it, and ways to ask for lines before they
// are written and to hand them out afterwards.
package asym
