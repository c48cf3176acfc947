#!/usr/bin/env bash
# Builds the Debian packages into build/release/packages; scripts/setup.sh first.
. "$(dirname "${BASH_SOURCE[0]}")/lib/common.sh"

case "${1:-}" in
  "") ;;
  -h|--help)
    cat <<'HELP'
usage: scripts/package.sh
Builds what is missing, then stasis, stasis-runtime-VERSION, stasis-softgpu and, where scripts/setup.sh has built CRIU, stasis-criu,
into build/release/packages.
HELP
    exit 0 ;;
  *) usage_error "unknown argument '$1'" ;;
esac

"$STASIS_ROOT/scripts/build.sh" release package_files
cd "$STASIS_ROOT/build/release"
rm -rf packages
quietly "$STASIS_ROOT/build/package.log" cpack --config CPackConfig.cmake
rm -rf packages/_CPack_Packages
ls -l packages >&2
