#!/usr/bin/env bash
# Configures and builds one preset; scripts/setup.sh first.
. "$(dirname "${BASH_SOURCE[0]}")/lib/common.sh"
. "$STASIS_ROOT/scripts/lib/criu.sh"
. "$STASIS_ROOT/scripts/lib/cuda.sh"

PRESETS="release debug asan tsan fuzz"
if [ "${1:-}" = -h ] || [ "${1:-}" = --help ]; then
  echo "usage: scripts/build.sh [PRESET [TARGET...]]   presets: $PRESETS (default release); builds into build/PRESET"
  exit 0
fi
preset=${1:-release}
[ $# -eq 0 ] || shift
case " $PRESETS " in *" $preset "*) ;; *) usage_error "unknown preset '$preset', one of: $PRESETS" ;; esac

cuda=$(cuda_find)
[ -n "$cuda" ] || die "no CUDA toolkit found: run scripts/setup.sh"
cd "$STASIS_ROOT"
log=$STASIS_ROOT/build/$preset.configure.log
quietly "$log" cmake --preset "$preset" -DSTASIS_CUDA_ROOT="$cuda" -DSTASIS_CRIU="$(criu_find)" \
  -DSTASIS_FUZZ_SECONDS="${STASIS_FUZZ_SECONDS:-15}"
cmake --build --preset "$preset" ${1:+--target "$@"}
