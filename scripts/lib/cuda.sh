# The CUDA toolkit: the installed one, otherwise NVIDIA's own packages from PyPI into the cache. Only nvcc, its
# compiler parts and the headers are needed; no driver and no GPU.

CUDA_RELEASE=13.0
CUDA_PYPI_PACKAGES=(nvidia-cuda-nvcc nvidia-cuda-crt nvidia-nvvm nvidia-cuda-runtime nvidia-cuda-cccl
  nvidia-cuda-profiler-api)

cuda_usable() { [ -x "$1/bin/nvcc" ] && [ -f "$1/include/cuda.h" ]; }

# Prints the root of a usable toolkit, or nothing.
cuda_find() {
  local candidate
  for candidate in "${STASIS_CUDA_ROOT:-}" "${CUDA_HOME:-}" /usr/local/cuda "$STASIS_CACHE/cuda-$CUDA_RELEASE"; do
    if [ -n "$candidate" ] && cuda_usable "$candidate"; then
      echo "$candidate"
      return
    fi
  done
}

cuda_install() {
  local site=$STASIS_CACHE/cuda-$CUDA_RELEASE-packages root
  note "installing the CUDA $CUDA_RELEASE compiler and headers from PyPI into $STASIS_CACHE"
  rm -rf "$site"
  quietly "$STASIS_CACHE/log/cuda.log" python3 -m pip install --no-deps --target "$site" \
    "${CUDA_PYPI_PACKAGES[@]/%/==$CUDA_RELEASE.*}"
  root=$site/nvidia/cu13
  # nvcc looks for lib64 and for the name that -lcudart asks for; the wheels carry neither.
  ln -sfn lib "$root/lib64"
  ln -sfn libcudart.so.13 "$root/lib/libcudart.so"
  ln -sfn "$root" "$STASIS_CACHE/cuda-$CUDA_RELEASE"
  cuda_usable "$STASIS_CACHE/cuda-$CUDA_RELEASE" || die "the CUDA packages from PyPI do not hold nvcc and cuda.h"
}
