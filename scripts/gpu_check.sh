#!/usr/bin/env bash
# What of Stasis works on this machine's NVIDIA GPUs: one command, a table, a report in JSON. See docs/nvidia.md.
. "$(dirname "${BASH_SOURCE[0]}")/lib/common.sh"

usage() {
  cat <<'HELP'
usage: scripts/gpu_check.sh [--device nvidia|softgpu] [--report FILE] [--minutes N] [--full] [--only STEP,...]
       scripts/gpu_check.sh --bundle FILE
On a machine with an NVIDIA GPU: the doctor; the driver's symbols; what is relied on of the driver; all samples with and without
the interposer; a training paused, checkpointed, killed and restored by each strategy; the same with PyTorch; what the interposer
costs; pause and restore beside the driver's own checkpoint with CRIU. A step that fails does not keep the others from being run.
  --device softgpu  all of it that a software device can do
  --report FILE     the report (default gpu_check.json)
  --minutes N       no step begins later than that (default 13)
  --full            more PyTorch programs
  --only STEP,...   only these: machine, doctor, symbols, facts, samples, devices, "demo by driver-checkpoint", "demo by reconstruct", pytorch,
                    overhead, "pause and restore"
  --bundle FILE     on a machine with a network: writes all that the check needs, CRIU included, into one archive. Unpack it on the
                    machine with the GPU, which needs python3 and no network, and run its scripts/gpu_check.sh.
Root is needed for checkpoints. GPU_CHECK_PYTHON names a Python that has PyTorch (default python3).
Exit status: 0 all steps passed or were not possible here, 1 a step failed, 2 wrong usage, 3 no NVIDIA GPU.
HELP
}

TARGETS=(stasis stasis-init stasis-ghost stasis_shim driver_checkpoint driver_facts call_cost program_holder sample_counter
  sample_vector sample_stencil sample_mlp_train sample_gpt_train sample_cnn_train sample_nccl_ring sample_ddp_train
  sample_pipeline_train sample_tp_train softgpud softgpu_cuda softgpu_cudart softgpu_cublas softgpu_cublaslt softgpu_cudnn softgpu_nccl)

# Sets $build and $criu: those of the bundle, or of this tree, made where they are missing.
prepare() {
  build=${STASIS_BUILD_DIR:-$STASIS_ROOT/build/release}
  if [ -f "$STASIS_ROOT/bundle.json" ]; then
    criu=$STASIS_ROOT/bin/criu
    build=$STASIS_ROOT/build/release
    python3 -B "$STASIS_ROOT/scripts/gpu/bundle.py" check "$STASIS_ROOT" || exit 1
    return
  fi
  . "$STASIS_ROOT/scripts/lib/criu.sh"
  if [ -z "${STASIS_BUILD_DIR:-}" ]; then
    "$STASIS_ROOT/scripts/setup.sh" --build
    "$STASIS_ROOT/scripts/build.sh" release "${TARGETS[@]}" >&2
  fi
  criu=$(criu_find)
}

bundle=
device=nvidia
arguments=()
while [ $# -gt 0 ]; do
  case "$1" in
    -h|--help) usage; exit 0 ;;
    --full) arguments+=("$1") ;;
    --bundle) [ $# -gt 1 ] || usage_error "--bundle needs a file"; bundle=$2; shift ;;
    --device|--report|--minutes|--only)
      [ $# -gt 1 ] || usage_error "$1 needs a value"
      [ "$1" != --device ] || device=$2
      arguments+=("$1" "$2")
      shift ;;
    *) usage_error "unknown argument '$1'" ;;
  esac
  shift
done
case "$device" in nvidia|softgpu) ;; *) usage_error "--device is nvidia or softgpu" ;; esac
command -v python3 >/dev/null || die "python3 is needed"

# The device files may be made only when the first program asks for them, by NVIDIA's own helper. /dev/dxg: of a Linux inside of Windows.
has_nvidia() { [ -e /dev/nvidiactl ] || [ -e /dev/dxg ] || [ -e /proc/driver/nvidia/version ] || nvidia-smi -L >/dev/null 2>&1; }

# Before anything is built.
if [ "$device" = nvidia ] && [ -z "$bundle" ] && ! has_nvidia; then
  printf '%s: no NVIDIA GPU here (no /dev/nvidiactl, no driver in the kernel); --device softgpu runs all that a software device can do\n' \
    "$(basename "$0")" >&2
  exit 3
fi

prepare
if [ -n "$bundle" ]; then
  [ -n "$criu" ] || die "no CRIU to put into the bundle: run scripts/setup.sh"
  command -v patchelf >/dev/null || install_packages patchelf
  . "$STASIS_ROOT/scripts/lib/cuda.sh"
  exec python3 -B "$STASIS_ROOT/scripts/gpu/bundle.py" make "$bundle" --build "$build" --criu "$criu" --cuda "$(cuda_find)"
fi
exec python3 -B "$STASIS_ROOT/scripts/gpu/check.py" --build "$build" --criu "$criu" "${arguments[@]}"
