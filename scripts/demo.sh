#!/usr/bin/env bash
# An unmodified CUDA program is checkpointed in the middle of its training, killed, restored on another device, and ends
# exactly as it does undisturbed.
. "$(dirname "${BASH_SOURCE[0]}")/lib/common.sh"
. "$STASIS_ROOT/scripts/lib/criu.sh"

built=
case "${1:-}" in
  "") ;;
  --built) built=1 ;;
  -h|--help)
    cat <<'HELP'
usage: scripts/demo.sh
Sets up and builds what is missing. Trains samples/mlp_train on Fashion-MNIST on a node of two software GPUs, undisturbed;
then again under `stasis run`: pauses and resumes it, checkpoints it in the middle, kills it with SIGKILL, restores it on the
other GPU and lets it finish. Passes when every printed loss and the SHA-256 of the weights are those of the undisturbed
run, the losses agree with the sample's host-only reference mode, and the test accuracy is at least 80%.
HELP
    exit 0 ;;
  *) usage_error "unknown argument '$1'" ;;
esac

if [ -z "$built" ]; then
  step "setup"
  "$STASIS_ROOT/scripts/setup.sh"
  step "build"
  "$STASIS_ROOT/scripts/build.sh" release stasis stasis-init stasis-ghost stasis_shim softgpud softgpu-smi softgpu_cuda \
    softgpu_cudart sample_mlp_train
  STASIS_CRIU=$(criu_find)
  export STASIS_CRIU
  # Checkpoints need root, and that of a user namespace will do.
  [ "$(id -u)" -eq 0 ] ||
    exec unshare --user --map-root-user --mount --propagation slave bash "${BASH_SOURCE[0]}" --built
fi

build=$STASIS_ROOT/build/release
train=$build/samples/mlp_train
work=$(mktemp -d)
daemon=
export STASIS_STATE_DIR=$work/state STASIS_RUN_DIR=$work/run SOFTGPU_SOCKET=$work/node/softgpud.sock
stasis() { "$build/bin/stasis" "$@"; }

cleanup() {
  stasis cancel --quiet --grace 1ms mlp >/dev/null 2>&1 || true
  [ -z "$daemon" ] || { kill "$daemon" && wait "$daemon"; } 2>/dev/null || true
  rm -rf "$work"
}
trap cleanup EXIT

fail() {
  echo "demo: FAIL $*"
  exit 1
}

# One verb; its JSON answer goes to $work/VERB.json.
verb() {
  stasis "$1" --json "${@:2}" >"$work/$1.json" && return
  cat "$work/$1.json" >&2
  fail "stasis $1"
}
# field VERB NAME: a field of that answer.
field() { python3 -c 'import json, sys; print(json.load(open(sys.argv[1]))[sys.argv[2]])' "$work/$1.json" "$2"; }
# Waits until the task has printed that step.
await_step() { stasis logs -f mlp | grep -m1 -q "^step $1 " || fail "the task ended before step $1"; }
# Memory in use on each GPU, in bytes, one after the other.
memory_used() {
  "$build/bin/softgpu-smi" --json |
    python3 -c 'import json, sys; print(*(d["memory_used"] for d in json.load(sys.stdin)["devices"]))'
}
mebibytes() { awk -v b="$1" 'BEGIN {printf "%.1f MiB", b / 1048576}'; }
milliseconds() { awk -v ms="$1" 'BEGIN {if (ms < 1000) printf "%.0f ms", ms; else printf "%.2f s", ms / 1000}'; }

step "two software GPUs of 1 GiB"
mkfifo "$work/ready"
"$build/bin/softgpud" --gpus 2 --memory 1GiB --socket "$SOFTGPU_SOCKET" --ready-fd 9 9>"$work/ready" \
  >"$work/softgpud.log" 2>&1 &
daemon=$!
read -rN1 <"$work/ready" || { cat "$work/softgpud.log" >&2; fail "softgpud did not start"; }

step "train undisturbed"
LD_LIBRARY_PATH=$build/lib/softgpu "$train" >"$work/undisturbed.log" || fail "mlp_train failed"
tail -n 3 "$work/undisturbed.log" >&2
steps=$(grep -c '^step ' "$work/undisturbed.log")

step "train under stasis on GPU 0"
stasis run --name mlp --device soft --gpus 0 --detach -- "$train" >&2 || fail "stasis run"
await_step $((steps / 4))
verb pause mlp
verb resume mlp
await_step $((steps / 2))
verb checkpoint mlp
note "$(sed -n '$p' "$STASIS_STATE_DIR/tasks/mlp/output.log") ... image $(field checkpoint image) is written"

step "kill -9"
kill -9 "$(python3 -c 'import json, sys; print(json.load(open(sys.argv[1]))["pid"])' "$STASIS_STATE_DIR/tasks/mlp/process.json")"
stasis logs -f mlp >/dev/null
stasis ps --all >&2
read -r first second < <(memory_used)

step "restore on GPU 1"
verb restore mlp --gpus 1 --detach
read -r first_after second_after < <(memory_used)
[ "$second_after" -gt "$second" ] && [ "$first_after" -le "$first" ] ||
  fail "the task is not on GPU 1: memory in use was $first, $second and is $first_after, $second_after"
stasis ps >&2
stasis logs -f mlp >"$work/disturbed.log"
verb ps --all
python3 -c 'import json, sys; sys.exit(json.load(open(sys.argv[1]))["tasks"][0].get("exit_code", 1))' "$work/ps.json" ||
  fail "the restored program did not end well: $(tail -n 5 "$work/disturbed.log")"

step "compare"
cmp "$work/undisturbed.log" "$work/disturbed.log" >&2 || fail "the disturbed run printed something else"
hash=$(sed -n 's/^sha256 //p' "$work/disturbed.log")
[ -n "$hash" ] || fail "no SHA-256 printed"
LD_LIBRARY_PATH=$build/lib/softgpu "$train" --reference >"$work/reference.log" || fail "the reference run failed"
python3 "$STASIS_ROOT/samples/compare_losses.py" "$work/disturbed.log" "$work/reference.log" >&2 ||
  fail "the losses differ from the reference"
accuracy=$(sed -n 's/^test accuracy \([0-9.]*\).*/\1/p' "$work/disturbed.log")
awk -v a="$accuracy" 'BEGIN {exit !(a >= 0.8 && a <= 1)}' || fail "test accuracy $accuracy is below 0.80"
echo "demo: PASS $steps losses and sha256 ${hash:0:16} as undisturbed, accuracy $accuracy; pause $(milliseconds "$(field pause pause_ms)"), checkpoint $(milliseconds "$(field checkpoint total_ms)") (standstill $(milliseconds "$(field checkpoint standstill_ms)")), restore $(milliseconds "$(field restore total_ms)"), image $(mebibytes "$(field checkpoint logical_bytes)"), $(mebibytes "$(field checkpoint added_bytes)") on disk"
