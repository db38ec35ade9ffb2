#!/bin/sh
# Builds the code under the build tag cuda with a toolkit's own headers, and runs its tests, on a
# machine that has the toolkit, a C compiler and a GPU, but no Go and no network.
#
#   culink/gpu.sh pack FILE   with Go: pack the toolchain and all modules (tar.gz, about 45 MB)
#   culink/gpu.sh test FILE   with CUDA, in a copy of this tree: unpack FILE, build and test
#
# CUDA_HOME names the toolkit (/usr/local/cuda), CUDNN_HOME the folder above cuDNN's include and lib.
# It prints a line for each step, or the reason why it was left out, and fails if a step failed.
set -eu

cd "$(dirname "$0")/.."

pack() {
	out=$(realpath -m "$1")
	work=$(mktemp -d)
	trap 'rm -rf "$work"' EXIT
	goroot=$(go env GOROOT)
	arch=$(go env GOHOSTOS)_$(go env GOHOSTARCH)
	go mod vendor -o "$work/vendor"
	mkdir "$work/go"
	(cd "$goroot" && tar c --exclude='*_test.go' --exclude=testdata --exclude='src/cmd' \
		VERSION go.env bin/go pkg/include \
		"pkg/tool/$arch/asm" "pkg/tool/$arch/cgo" "pkg/tool/$arch/compile" "pkg/tool/$arch/link" "pkg/tool/$arch/vet" src) |
		tar x -C "$work/go"
	tar c -C "$work" go vendor | gzip -9 >"$out"
	ls -l "$out"
}

failed=0

# step NAME COMMAND... runs a command and prints its result.
step() {
	name=$1 begun=$(date +%s)
	shift
	if "$@" >"$work/log" 2>&1; then
		echo "culink: ok: $name ($(($(date +%s) - begun)) s)"
	else
		echo "culink: FAILED: $name ($(($(date +%s) - begun)) s)"
		failed=1
	fi
	tail -n 40 "$work/log" | sed 's/^/    /'
}

# must_fail NAME COMMAND... is step for a command that must fail.
must_fail() {
	name=$1
	shift
	if "$@" >"$work/log" 2>&1; then
		echo "culink: FAILED: $name: it compiles"
		failed=1
	else
		echo "culink: ok: $name"
		tail -n 12 "$work/log" | sed 's/^/    /'
	fi
}

run_tests() {
	file=$(realpath "$1")
	cuda=${CUDA_HOME:-/usr/local/cuda}
	work=$(mktemp -d)
	ours=no
	trap '[ $ours = no ] || rm -f vendor; rm -rf "$work"' EXIT
	tar x -z -C "$work" -f "$file"
	[ ! -e vendor ] || { echo "culink: the folder vendor exists: remove it" >&2; exit 1; }
	ln -s "$work/vendor" vendor
	ours=yes
	export PATH="$work/go/bin:$PATH" GOROOT="$work/go" GOCACHE="$work/cache" GOPATH="$work/path" GOENV=off
	export GOFLAGS="-mod=vendor -buildvcs=false" GOTOOLCHAIN=local GOPROXY=off
	export CGO_ENABLED=1 SYMGRAD_REQUIRE=cuda
	version=$(sed -n 's/^#define CUDA_VERSION \([0-9]*\).*/\1/p' "$cuda/include/cuda.h")
	echo "culink: $(go version), $(cc --version | head -n 1), CUDA_VERSION $version in $cuda/include"
	libs="-L$cuda/lib64 -L$cuda/lib64/stubs"

	export CGO_LDFLAGS="$libs" CGO_CFLAGS="-I$cuda/include"
	if [ "$version" -ge 13000 ]; then
		must_fail "gorgonia.org/cu does not compile without compat/cuda.h" go build gorgonia.org/cu
	fi
	export CGO_CFLAGS="-I$PWD/culink/compat -I$cuda/include"
	step "build of gorgonia.org/cu" go build gorgonia.org/cu
	step "vet of culink" go vet -tags cuda ./culink
	step "tests of culink" go test -tags cuda -count=1 -v ./culink

	cudnn=${CUDNN_HOME:-$cuda}
	if [ ! -e "$cudnn/include/cudnn.h" ]; then
		echo "culink: not built: gorgonia and ops under the tag cuda: no $cudnn/include/cudnn.h (set CUDNN_HOME)"
		return
	fi
	mkdir "$work/lib" # names that -l finds, if only names with a version are installed
	for l in "$cudnn"/lib*/libcudnn.so.*; do
		[ ! -e "$l" ] || ln -sf "$l" "$work/lib/libcudnn.so"
	done
	export CGO_CFLAGS="$CGO_CFLAGS -I$cudnn/include" CGO_LDFLAGS="$libs -L$work/lib -L$cudnn/lib"
	export LD_LIBRARY_PATH="$cudnn/lib:$cuda/lib64:${LD_LIBRARY_PATH:-}"
	step "build of gorgonia under the tag cuda" go build -tags cuda gorgonia.org/gorgonia
	step "vet of ops under the tag cuda" go vet -tags cuda ./ops
	step "collectives of ops on a machine's device" go test -tags cuda -count=1 -timeout 2m -v -run 'TestACollective|TestCUDADo' ./ops
}

case "${1:-} ${2:+file}" in
"pack file") pack "$2" ;;
"test file") run_tests "$2" ;;
*)
	sed -n '2,10s/^# \{0,1\}//p' "$0" >&2
	exit 2
	;;
esac
exit $failed
