#!/usr/bin/env bash
# Runs one benchmark, prints a table and writes build/bench/NAME.json.
. "$(dirname "${BASH_SOURCE[0]}")/lib/common.sh"

. "$STASIS_ROOT/scripts/lib/criu.sh"

NAMES="softgpu overhead pause store image libs sched multirank migrate agent live"
case "${1:-}" in
  -h|--help|"")
    cat <<HELP
usage: scripts/bench.sh NAME   (one of: $NAMES all)
  softgpu   the executor: a tiled matrix product and the commonest instructions; mlp_train on a device beside its
            single-threaded host reference
  overhead  whole programs and single calls with and without the interposer, and what forwarding a call costs
  pause     pause, checkpoint and restore against the device memory held (STASIS_BENCH_MIB), beside the driver's own
            checkpoint with CRIU
  store     the image store's stages beside memory and disk (STASIS_BENCH_DISK: a folder on it), the size of chunks, and
            zstd and borg on the same bytes
  image     what active memory, dedup and compression save of an image, alone and together; standstill with and without
            a snapshot and waiting for the low point; a second checkpoint of frozen weights
  libs      programs on cuBLAS and cuDNN with and without the wrappers of those libraries: what they cost, what they save of
            an image, and how long 64 handles take to come back
  sched     scheduling policies on the Philly trace (STASIS_TRACES: its folder; else a generated one) beside the artifact of
            Astraea, and the time of one decision
  multirank jobs of 1, 2, 4 and 8 ranks of ddp_train: standstill, bytes copied off the devices, written, read and fanned out,
            beside as many tasks that know nothing of each other
  migrate   moving a job between nodes with and without pre-copy, for several sizes (STASIS_BENCH_PROGRAMS) and bandwidths
            (STASIS_BENCH_MBITS), beside a checkpoint on a shared disk and beside the program's own checkpoint
  agent     stasisd with 200 tasks, 1,000 Watch streams and 500 calls a second for a minute, beside an empty gRPC server: how
            long calls take, and memory
  live      forty jobs on a live cluster of three nodes and in the simulator, told what the verbs cost: when the last one ends
  all       all of them, and docs/performance.md from what they found (an hour or two; STASIS_BENCH_RUNS=1 makes it shorter)
Alternates what it compares, reports medians and spreads, and writes build/bench/NAME.json.
HELP
    [ $# -gt 0 ] && exit 0 || exit 2 ;;
esac
all=0
if [ "$1" = all ]; then
  [ $# -eq 1 ] || usage_error "all takes no other name beside it"
  all=1
  set -- $NAMES
  rm -f "$STASIS_ROOT"/build/bench/*.json  # the report is of one run
fi
for name in "$@"; do
  case " $NAMES " in *" $name "*) ;; *) usage_error "unknown benchmark '$name', one of: $NAMES all" ;; esac
done

targets_of() {
  case "$1" in
    softgpu) echo exec_bench softgpud softgpu_cuda softgpu_cudart sample_mlp_train ;;
    overhead) echo stasis_shim softgpud softgpu_cuda softgpu_cudart sample_mlp_train sample_gpt_train sample_stencil \
      sample_vector call_cost ;;
    pause) echo stasis_shim stasis stasis-init stasis-ghost softgpud softgpu-smi softgpu_cuda softgpu_cudart program_holder \
      driver_checkpoint ;;
    store) echo stasis_shim stasis stasis-init stasis-ghost softgpud softgpu-smi softgpu_cuda softgpu_cudart store_bench \
      driver_checkpoint sample_mlp_train sample_gpt_train ;;
    image) echo stasis_shim stasis stasis-init stasis-ghost softgpud softgpu-smi softgpu_cuda softgpu_cudart store_bench \
      program_holder program_silent_mlp sample_mlp_train ;;
    libs) echo stasis_shim stasis stasis-init stasis-ghost softgpud softgpu-smi softgpu_cuda softgpu_cudart softgpu_cublas \
      softgpu_cublaslt softgpu_cudnn sample_gpt_train sample_cnn_train program_libraries library_call_cost ;;
    sched) echo stasis-sim decision_bench ;;
    multirank) echo stasis_shim stasis stasis-init stasis-ghost softgpud softgpu-smi softgpu_cuda softgpu_cudart softgpu_nccl \
      sample_ddp_train ;;
    migrate) echo stasis_shim stasis stasis-init stasis-ghost stasisd softgpud softgpu-smi softgpu_cuda softgpu_cudart \
      sample_mlp_train ;;
    live) echo stasis_shim stasis stasis-init stasis-ghost stasisd stasis-schedd stasis-sim softgpud softgpu-smi softgpu_cuda \
      softgpu_cudart softgpu_nccl softgpu_cudnn sample_mlp_train sample_gpt_train sample_cnn_train sample_stencil sample_vector \
      sample_ddp_train ;;
    agent) echo stasis_shim stasis stasis-init stasis-ghost stasisd softgpud softgpu-smi softgpu_cuda softgpu_cudart \
      program_idle agent_load ;;
  esac
}

"$STASIS_ROOT/scripts/setup.sh"
for name in "$@"; do
  [ "$name" != store ] || install_packages zstd borgbackup
  "$STASIS_ROOT/scripts/build.sh" release $(targets_of "$name") >&2
  python=python3  # agents are spoken to by the one that has gRPC
  case "$name" in migrate | live) python=/usr/bin/python3 ;; esac
  STASIS_CRIU=$(criu_find) STASIS_BUILD_DIR=$STASIS_ROOT/build/release PYTHONPATH=$STASIS_ROOT/tests/harness:$STASIS_ROOT/tests/scheduler \
    "$python" -B "$STASIS_ROOT/scripts/bench/bench_$name.py" "$STASIS_ROOT/build/bench/$name.json"
done
if [ $all -eq 1 ]; then
  commit=$(git -C "$STASIS_ROOT" rev-parse --short HEAD)
  python3 "$STASIS_ROOT/scripts/bench/performance.py" "$STASIS_ROOT/build/bench" "$commit" >"$STASIS_ROOT/build/bench/performance.md"
  cp "$STASIS_ROOT/build/bench/performance.md" "$STASIS_ROOT/docs/performance.md"
  echo "written to docs/performance.md"
fi
