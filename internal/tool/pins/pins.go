//go:build pins

package pins

import (
	_ "github.com/klauspost/compress/zstd"             // data shards and logs
	_ "github.com/lmittmann/tint"                      // log lines on a terminal
	_ "github.com/prometheus/client_golang/prometheus" // metrics
	_ "go4.org/unsafe/assume-no-moving-gc"             // with an older one gorgonia panics at start under Go 1.26
	_ "golang.org/x/sync/errgroup"                     // goroutines with one owner
	_ "gorgonia.org/vecf32"                            // the tag avx replaces its loops
)
