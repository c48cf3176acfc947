#!/usr/bin/env bash
# Runs one benchmark, prints a table and writes build/bench/NAME.json.
. "$(dirname "${BASH_SOURCE[0]}")/lib/common.sh"

NAMES="softgpu"
case "${1:-}" in
  -h|--help|"")
    cat <<HELP
usage: scripts/bench.sh NAME   (one of: $NAMES all)
  softgpu   the executor: a tiled matrix product and the commonest instructions; mlp_train on a device beside its
            single-threaded host reference
Alternates what it compares, reports medians and spreads, and writes build/bench/NAME.json.
HELP
    [ $# -gt 0 ] && exit 0 || exit 2 ;;
  all) set -- $NAMES ;;
esac
for name in "$@"; do
  case " $NAMES " in *" $name "*) ;; *) usage_error "unknown benchmark '$name', one of: $NAMES all" ;; esac
done

"$STASIS_ROOT/scripts/setup.sh"
for name in "$@"; do
  "$STASIS_ROOT/scripts/build.sh" release exec_bench softgpud softgpu_cuda softgpu_cudart sample_mlp_train >&2
  STASIS_BUILD_DIR=$STASIS_ROOT/build/release PYTHONPATH=$STASIS_ROOT/tests/harness \
    python3 -B "$STASIS_ROOT/scripts/bench/$name.py" "$STASIS_ROOT/build/bench/$name.json"
done
