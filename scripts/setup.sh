#!/usr/bin/env bash
# Installs what building and testing need; quiet and quick when nothing is missing.
. "$(dirname "${BASH_SOURCE[0]}")/lib/common.sh"
. "$STASIS_ROOT/scripts/lib/criu.sh"
. "$STASIS_ROOT/scripts/lib/cuda.sh"

only_build=
case "${1:-}" in
  "") ;;
  --build) only_build=1 ;;
  -h|--help)
    cat <<'HELP'
usage: scripts/setup.sh [--build]
Installs, where missing: Debian packages (apt-get, as root or through sudo), CRIU >= 4.1, the CUDA toolkit.
  --build           only what is needed to build and to run, and nothing for the tests
Environment:
  STASIS_CACHE      where CRIU and a downloaded toolkit are kept (default ~/.cache/stasis)
  STASIS_CRIU       a CRIU to use instead of the one found
  STASIS_CUDA_ROOT  a CUDA toolkit to use instead of the one found
HELP
    exit 0 ;;
  *) usage_error "unknown argument '$1'" ;;
esac

PACKAGES=(g++ cmake ninja-build ccache git python3 python3-pip dpkg-dev ca-certificates file patchelf procps libgtest-dev libgmock-dev
  libbenchmark-dev libcli11-dev nlohmann-json3-dev libzstd-dev liblz4-dev zlib1g-dev libfmt-dev libxxhash-dev libunwind-dev
  libopenblas-serial-dev dataset-fashion-mnist iproute2 libnftables1 libgrpc++-dev libssl-dev libsodium-dev protobuf-compiler-grpc
  libprotobuf-dev protobuf-compiler prometheus-cpp-dev libcivetweb-dev libsqlite3-dev libncurses-dev python3-grpcio python3-protobuf openssl)
# Not every one of them is a package of every derivative.
TEST_PACKAGES=(clang libclang-rt-dev clang-format valgrind openmpi-bin musl-tools slurm-wlm munge libslurm-dev chromium python3-yaml
  groff-base systemd)
[ -n "$only_build" ] || PACKAGES+=("${TEST_PACKAGES[@]}")

command -v apt-get >/dev/null || die "only Debian and its derivatives are supported: apt-get was not found"
install_packages "${PACKAGES[@]}"
if [ -z "$(criu_find)" ]; then
  if [ ! -x "$STASIS_CACHE/criu/bin/criu" ]; then
    install_packages "${CRIU_BUILD_PACKAGES[@]}"
    criu_build
  fi
  criu_usable "$STASIS_CACHE/criu/bin/criu" ||
    die "$STASIS_CACHE/criu/bin/criu does not work on this machine: $("$STASIS_CACHE/criu/bin/criu" check 2>&1 | grep -m 3 Error)"
fi
[ -n "$(cuda_find)" ] || cuda_install
