# shellcheck shell=bash disable=SC2034,SC2154 # variables of one are used by the other
# What the scripts of this folder share. They source it, under set -euo pipefail.

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(dirname "$here")

note() { echo "${0##*/}: $*" >&2; }

die() {
	note "$*"
	exit 2
}

# Reads a command line: --some-name VALUE sets the variable some_name. Of NAMES, one that ends with ? takes no value and
# becomes yes; one that ends with + is an array, which every VALUE is added to. --help prints the head of the script. What
# stands behind the options is left in the array rest.
options() { # NAMES ARGUMENT...
	local names=" $1 " name
	shift
	while [[ ${1-} == --* ]]; do
		[ "$1" != --help ] || { sed -n '2,/^set -/s/^# \{0,1\}//p' "$0"; exit 0; }
		name=${1#--}
		name=${name//-/_}
		[[ $name =~ ^[a-z_]+$ ]] || die "unknown option $1: see --help"
		if [[ $names == *" $name? "* ]]; then
			printf -v "$name" yes
			shift
			continue
		fi
		[[ $names =~ " $name"\+?" " ]] || die "unknown option $1: see --help"
		[ $# -ge 2 ] || die "$1 wants a value: see --help"
		if [[ $names == *" $name+ "* ]]; then
			local -n values=$name
			values+=("$2")
		else
			printf -v "$name" %s "$2"
		fi
		shift 2
	done
	rest=("$@")
}

no_more() { # ARGUMENT...: dies of what stands behind the options
	[ $# -eq 0 ] || die "\"$1\" is no option: see --help"
}

json() { # TEXT: as a string of JSON
	local text=${1//\\/\\\\}
	text=${text//\"/\\\"}
	printf '"%s"' "$(tr -d '\000-\037' <<<"$text")"
}

json_list() { # the lines of standard input that are not empty, as the inside of a list of JSON
	local line
	while IFS= read -r line; do [ -z "$line" ] || { json "$line"; echo; }; done | paste -sd,
}

smi() { # FIELDS: a line for each GPU that nvidia-smi shows; none where there is no such program
	{ nvidia-smi --query-gpu="$1" --format=csv,noheader 2>/dev/null || true; } | sed 's/, / /'
}

kernel() { uname -r | cut -d- -f1; }

# Makes the folder $temp, where programs keep their temporary files, so that nothing of them stays.
own_temp() {
	temp=$(mktemp -d)
	trap 'rm -rf "$temp"' EXIT
	export TMPDIR=$temp
}

# NVLink multicast can put every GPU of a host out of service where the fabric is shared. Nobody here uses it.
no_multicast() {
	export NCCL_NVLS_ENABLE=0 NVSHMEM_DISABLE_NVLS=1 TORCH_SYMM_MEM_DISABLE_MULTICAST=1
}

# Runs a program within $limit seconds; its output goes to $raw/logs/NAME. What one that fails has left is judged by compare.
timed() { # NAME COMMAND...
	local name=$1 begun=$SECONDS code=0
	shift
	timeout --foreground -k 5 "$limit" "$@" >"$raw/logs/$name.out" 2>"$raw/logs/$name.err" </dev/null || code=$?
	note "$name: $((SECONDS - begun)) s, exit code $code"
	if [ "$code" -ne 0 ]; then
		sed -n '/[a-z]/p' "$raw/logs/$name.err" | tail -n 5 >&2
	fi
	return "$code"
}
