# Shared by the scripts in this folder; sourced, never run.
set -euo pipefail

STASIS_ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
# Things that outlive a checkout: CRIU, a toolkit, downloaded sources.
STASIS_CACHE=${STASIS_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/stasis}
# Checkouts in different places share one compiler cache.
export CCACHE_BASEDIR=$STASIS_ROOT CCACHE_NOHASHDIR=1

step() { printf '\n== %s\n' "$*" >&2; }
note() { printf '   %s\n' "$*" >&2; }
die() { printf '%s: %s\n' "$(basename "$0")" "$*" >&2; exit 1; }
usage_error() { printf '%s: %s (try --help)\n' "$(basename "$0")" "$*" >&2; exit 2; }

# Runs a command with its output in a log, shown only when it fails.
quietly() {
  local log=$1
  shift
  mkdir -p "$(dirname "$log")"
  if ! "$@" >"$log" 2>&1; then
    tail -n 40 "$log" >&2
    die "failed: $* (whole output: $log)"
  fi
}

as_root() {
  if [ "$(id -u)" -eq 0 ]; then
    "$@"
  elif command -v sudo >/dev/null; then
    sudo -- "$@"
  else
    die "needs root for: $*"
  fi
}

# Installs those of these Debian packages that are missing.
install_packages() {
  local missing=() package
  for package in "$@"; do
    dpkg-query -W -f '${Status}' "$package" 2>/dev/null | grep -q 'ok installed' || missing+=("$package")
  done
  [ ${#missing[@]} -gt 0 ] || return 0
  note "installing Debian packages: ${missing[*]}"
  quietly "$STASIS_CACHE/log/apt-update.log" as_root apt-get -qq update
  quietly "$STASIS_CACHE/log/apt-install.log" as_root env DEBIAN_FRONTEND=noninteractive \
    apt-get -qq install -y --no-install-recommends "${missing[@]}"
}
