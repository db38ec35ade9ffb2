# shellcheck shell=bash disable=SC2034,SC2154 # other scripts use these variables
# Common functions of the scripts in this folder, which source it under set -euo pipefail.

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(dirname "$here")

note() { echo "${0##*/}: $*" >&2; }

die() {
	note "$*"
	exit 2
}

# Reads a command line: --some-name VALUE sets the variable some_name. In NAMES, a name that ends
# with ? takes no value and becomes yes, and a name that ends with + is an array to which each VALUE
# is added. --help prints the header of the script. The arguments after the options are left in the
# array rest.
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
		[ $# -ge 2 ] || die "$1 needs a value: see --help"
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

no_more() { # ARGUMENT...: rejects arguments after the options
	[ $# -eq 0 ] || die "unexpected argument \"$1\": see --help"
}

json() { # TEXT: as a JSON string
	local text=${1//\\/\\\\}
	text=${text//\"/\\\"}
	printf '"%s"' "$(tr -d '\000-\037' <<<"$text")"
}

json_list() { # the non-empty lines of standard input as the items of a JSON list
	local line
	while IFS= read -r line; do [ -z "$line" ] || { json "$line"; echo; }; done | paste -sd,
}

smi() { # FIELDS: a line per GPU in nvidia-smi; none without nvidia-smi
	{ nvidia-smi --query-gpu="$1" --format=csv,noheader 2>/dev/null || true; } | sed 's/, / /'
}

first_of() { # COMMAND...: the first line of its output, or nothing
	{ "$@" 2>/dev/null || true; } | sed -n 1p
}

revision() { # the commit of the working tree
	git --no-optional-locks -C "$root" describe --always --dirty --abbrev=12 2>/dev/null || echo unknown
}

machine() { # this machine, as a JSON object
	cat <<-END
		{
		    "cpu": $(json "$(sed -n 's/^model name[^:]*: *//p' /proc/cpuinfo | sed -n 1p)"),
		    "cores": $(nproc),
		    "l3": $(json "$(cat /sys/devices/system/cpu/cpu0/cache/index3/size 2>/dev/null || true)"),
		    "memory": $(json "$(sed -n 's/^MemTotal: *//p' /proc/meminfo)"),
		    "kernel": $(json "$(kernel)"),
		    "thp": $(json "$(cat /sys/kernel/mm/transparent_hugepage/enabled 2>/dev/null || true)")
		  }
	END
}

kernel() { uname -r | cut -d- -f1; }

# Makes the folder $temp for temporary files of programs, and removes it at the end.
own_temp() {
	temp=$(mktemp -d)
	trap 'rm -rf "$temp"' EXIT
	export TMPDIR=$temp
}

# NVLink multicast can break every GPU of a host with a shared fabric. No library here may use it.
no_multicast() {
	export NCCL_NVLS_ENABLE=0 NVSHMEM_DISABLE_NVLS=1 TORCH_SYMM_MEM_DISABLE_MULTICAST=1
}

# Runs a program for at most $limit seconds; its output goes to $raw/logs/NAME. compare judges the
# results of a failed program.
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
