#!/usr/bin/env bash
# Trains a network on a software GPU with an unmodified CUDA program, and checks the outcome against a host-only run.
. "$(dirname "${BASH_SOURCE[0]}")/lib/common.sh"

case "${1:-}" in
  "") ;;
  -h|--help)
    cat <<'HELP'
usage: scripts/demo.sh
Sets up and builds what is missing, then trains samples/mlp_train on Fashion-MNIST on one softgpu device, twice, and
once more in the sample's host-only reference mode. Passes when both device runs give the same weights, the losses
agree with the reference and the test accuracy is at least 80%.
HELP
    exit 0 ;;
  *) usage_error "unknown argument '$1'" ;;
esac

step "setup"
"$STASIS_ROOT/scripts/setup.sh"
step "build"
"$STASIS_ROOT/scripts/build.sh" release softgpud softgpu-smi softgpu_cuda softgpu_cudart sample_mlp_train

build=$STASIS_ROOT/build/release
work=$(mktemp -d)
daemon=
cleanup() {
  [ -z "$daemon" ] || { kill "$daemon" && wait "$daemon"; } 2>/dev/null || true
  rm -rf "$work"
}
trap cleanup EXIT

fail() {
  echo "demo: FAIL $*"
  exit 1
}

step "train: one software GPU of 1 GiB"
mkfifo "$work/ready"
"$build/bin/softgpud" --gpus 1 --memory 1GiB --socket "$work/node/softgpud.sock" --ready-fd 9 9>"$work/ready" \
  >"$work/softgpud.log" 2>&1 &
daemon=$!
read -rN1 <"$work/ready" || { cat "$work/softgpud.log" >&2; fail "softgpud did not start"; }
export SOFTGPU_SOCKET=$work/node/softgpud.sock

on_device() { LD_LIBRARY_PATH=$build/lib/softgpu "$build/samples/mlp_train" "$@"; }

started=$EPOCHREALTIME
on_device | tee "$work/first.log" | awk '/^step/ {if ($2 % 100 == 0) print; next} {print}' >&2 || fail "mlp_train failed"
elapsed=$(awk -v a="$started" -v b="$EPOCHREALTIME" 'BEGIN {printf "%.1f", b - a}')
"$build/bin/softgpu-smi" >&2
step "train again"
on_device >"$work/second.log" || fail "the second run failed"
step "train on the host alone"
"$build/samples/mlp_train" --reference >"$work/reference.log" || fail "the reference run failed"

hash_of() { sed -n 's/^sha256 //p' "$1"; }
first=$(hash_of "$work/first.log")
[ -n "$first" ] || fail "no SHA-256 printed"
[ "$first" = "$(hash_of "$work/second.log")" ] || fail "two runs gave different weights"
cmp -s "$work/first.log" "$work/second.log" || fail "two runs printed different losses"
python3 "$STASIS_ROOT/samples/compare_losses.py" "$work/first.log" "$work/reference.log" >&2 ||
  fail "the losses differ from the reference"
accuracy=$(sed -n 's/^test accuracy \([0-9.]*\).*/\1/p' "$work/first.log")
awk -v a="$accuracy" 'BEGIN {exit !(a >= 0.8 && a <= 1)}' || fail "test accuracy $accuracy is below 0.80"
echo "demo: PASS accuracy $accuracy in $elapsed s on a software GPU, same weights twice (sha256 ${first:0:16}), losses agree with the host"
