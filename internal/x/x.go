package x

import (
	_ "github.com/ebitengine/purego"
	_ "github.com/google/go-cmp/cmp"
	_ "github.com/klauspost/compress/zstd"
	_ "github.com/lmittmann/tint"
	_ "github.com/prometheus/client_golang/prometheus"
	_ "github.com/rogpeppe/go-internal/testscript"
	_ "github.com/spf13/cobra"
	_ "github.com/spf13/pflag"
	_ "github.com/spf13/viper"
	_ "go.uber.org/goleak"
	_ "go.yaml.in/yaml/v3"
	_ "go4.org/unsafe/assume-no-moving-gc"
	_ "golang.org/x/sync/errgroup"
	_ "golang.org/x/sys/unix"
	_ "gonum.org/v1/gonum/blas"
	_ "gorgonia.org/gorgonia"
	_ "gorgonia.org/tensor"
	_ "gorgonia.org/vecf32"
	_ "github.com/chewxy/hm"
	_ "pgregory.net/rapid"
)
