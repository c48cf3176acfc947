# The CUDA toolkit: the installed one, otherwise NVIDIA's own packages from PyPI into the cache. Only nvcc, its
# compiler parts and the headers are needed, those of cuBLAS, cuDNN and NCCL among them; no driver and no GPU.

CUDA_RELEASE=13.0
CUDA_PYPI_PACKAGES=(nvidia-cuda-nvcc nvidia-cuda-crt nvidia-nvvm nvidia-cuda-runtime nvidia-cuda-cccl
  nvidia-cuda-profiler-api)

# Libraries that are needed by their headers alone, at the versions whose functions are known here.
CUDA_HEADER_PACKAGES=(nvidia-cublas==13.1.0.* nvidia-cudnn-cu13==9.19.0.* nvidia-nccl-cu13==2.28.9)
CUDA_REQUIRED_HEADERS=(cuda.h cublas_v2.h cublasLt.h cublasXt.h cudnn.h nccl.h)

cuda_usable() {
  local header
  [ -x "$1/bin/nvcc" ] || return 1
  for header in "${CUDA_REQUIRED_HEADERS[@]}"; do
    [ -f "$1/include/$header" ] || return 1
  done
}

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

# cuda_install_headers PACKAGE INCLUDE: of the package, which is large, only what lies in its include folders.
cuda_install_headers() {
  local wheels
  wheels=$(mktemp -d "$STASIS_CACHE/wheel.XXXXXX")
  quietly "$STASIS_CACHE/log/cuda-headers.log" python3 -m pip download --no-deps --only-binary :all: \
    --dest "$wheels" "$1"
  python3 - "$2" "$wheels"/*.whl <<'PYTHON'
import pathlib, sys, zipfile
include = pathlib.Path(sys.argv[1])
with zipfile.ZipFile(sys.argv[2]) as wheel:
    for name in wheel.namelist():
        inside = name.partition("/include/")[2]
        if inside and not name.endswith("/"):
            (include / inside).parent.mkdir(parents=True, exist_ok=True)
            (include / inside).write_bytes(wheel.read(name))
PYTHON
  rm -rf "$wheels"
}

cuda_install() {
  local site=$STASIS_CACHE/cuda-$CUDA_RELEASE-packages root package
  note "installing the CUDA $CUDA_RELEASE compiler and headers from PyPI into $STASIS_CACHE"
  rm -rf "$site"
  quietly "$STASIS_CACHE/log/cuda.log" python3 -m pip install --no-deps --target "$site" \
    "${CUDA_PYPI_PACKAGES[@]/%/==$CUDA_RELEASE.*}"
  root=$site/nvidia/cu13
  for package in "${CUDA_HEADER_PACKAGES[@]}"; do
    cuda_install_headers "$package" "$root/include"
  done
  # nvcc looks for lib64 and for the name that -lcudart asks for; the wheels carry neither.
  ln -sfn lib "$root/lib64"
  ln -sfn libcudart.so.13 "$root/lib/libcudart.so"
  ln -sfn "$root" "$STASIS_CACHE/cuda-$CUDA_RELEASE"
  cuda_usable "$STASIS_CACHE/cuda-$CUDA_RELEASE" || die "the CUDA packages from PyPI do not hold nvcc and these headers: ${CUDA_REQUIRED_HEADERS[*]}"
}
