#!/usr/bin/env bash
# Installs what is missing, builds everything and runs every test. Ends with the summary of the main suite and the object matrix.
. "$(dirname "${BASH_SOURCE[0]}")/lib/common.sh"

full=0
only="fuzz tsan release"
while [ $# -gt 0 ]; do
  case "$1" in
    --full) full=1 ;;
    --only) [ $# -gt 1 ] || usage_error "--only needs a list of presets"; only=$2; shift ;;
    -h|--help)
      cat <<'HELP'
usage: scripts/test.sh [--full] [--only "PRESET..."]
  --full   run the full counts instead of the representative, seeded ones
  --only   only these of: fuzz tsan release asan (default: the first three, in this order)
fuzz     unit tests under AddressSanitizer and UndefinedBehaviorSanitizer, built with clang, and each libFuzzer target for
         STASIS_FUZZ_SECONDS (default 15, with --full 60)
tsan     unit tests under ThreadSanitizer
release  every test and the table of the object matrix, built with the system's compiler (GCC)
asan     the unit tests of fuzz without its instrumentation for fuzzing
HELP
      exit 0 ;;
    *) usage_error "unknown argument '$1'" ;;
  esac
  shift
done
for preset in $only; do
  case "$preset" in asan|tsan|fuzz|release) ;; *) usage_error "--only: unknown preset '$preset'" ;; esac
done

export STASIS_TEST_FULL=$full
export STASIS_FUZZ_SECONDS=${STASIS_FUZZ_SECONDS:-$((full ? 60 : 15))}
[[ $STASIS_FUZZ_SECONDS =~ ^[1-9][0-9]*$ ]] || usage_error "STASIS_FUZZ_SECONDS must be a positive number"
export ASAN_OPTIONS=detect_stack_use_after_return=1:strict_string_checks=1
export UBSAN_OPTIONS=print_stacktrace=1
export TSAN_OPTIONS=halt_on_error=1:second_deadlock_stack=1

# Most tests wait as long as they compute: for programs to start and end, and for the disk.
JOBS=$((2 * $(nproc)))

# Every test, then the table of the object matrix, which ctest keeps to itself.
run_release() {
  local status=0
  rm -f matrix.txt
  ctest --output-on-failure -j"$JOBS" || status=$?
  if [ -f matrix.txt ]; then
    step "release: the object matrix"
    cat matrix.txt
  fi
  return "$status"
}

run_preset() {
  local preset=$1
  step "$preset: build"
  "$STASIS_ROOT/scripts/build.sh" "$preset"
  step "$preset: test"
  cd "$STASIS_ROOT/build/$preset"
  case "$preset" in
    asan) ctest --output-on-failure -j"$JOBS" -L unit ;;
    tsan) ctest --output-on-failure -j"$JOBS" -L unit -LE "fuzz-corpus|rpc" ;;
    fuzz) ctest --output-on-failure -j"$JOBS" -L "unit|fuzz" ;;
    release) run_release ;;
  esac
}

step "setup"
"$STASIS_ROOT/scripts/setup.sh"
for preset in $only; do run_preset "$preset"; done
