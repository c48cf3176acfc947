# CRIU >= 4.1: the installed one when it works here, otherwise built once from Debian's source package of a newer suite
# into the cache. Debian 12's own 3.17 does not start on kernels >= 6.13 (vDSO layout).

CRIU_MINIMUM=4.1
CRIU_BUILD_PACKAGES=(build-essential pkg-config libprotobuf-c-dev libprotobuf-dev protobuf-c-compiler protobuf-compiler
  libnl-3-dev libcap-dev libnet1-dev libbsd-dev uuid-dev libgnutls28-dev libnftables-dev)

criu_version() { "$1" --version 2>/dev/null | sed -n 's/^Version: //p'; }

criu_usable() {
  local version
  version=$(criu_version "$1") || return 1
  [ -n "$version" ] && dpkg --compare-versions "$version" ge "$CRIU_MINIMUM" || return 1
  # Without privilege `criu check` cannot tell; the version must do then, and `stasis doctor` says the rest.
  [ "$(id -u)" -ne 0 ] || "$1" check >/dev/null 2>&1
}

# Prints the path of a usable CRIU, or nothing.
criu_find() {
  local candidate
  for candidate in "${STASIS_CRIU:-}" "$(command -v criu || true)" "$STASIS_CACHE/criu/bin/criu"; do
    if [ -n "$candidate" ] && [ -x "$candidate" ] && criu_usable "$candidate"; then
      echo "$candidate"
      return
    fi
  done
}

# Downloads the upstream tarball named by a newer suite's source index; apt checks its hash against the signed index.
criu_fetch_source() {
  local work=$1 mirror suite versions version
  mirror=$(apt-get indextargets --format '$(SITE) $(CODENAME) $(RELEASE) $(COMPONENT)' 2>/dev/null |
    awk '$NF == "main" && ($2 ~ /^[a-z]+$/ || $3 ~ /^[a-z]+$/) {print $1; exit}')
  [ -n "$mirror" ] || die "apt has no Debian mirror configured; install CRIU >= $CRIU_MINIMUM yourself and set STASIS_CRIU"
  mkdir -p "$work/lists/partial" "$work/cache/archives/partial"
  for suite in trixie forky sid; do
    echo "deb-src [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $mirror $suite main"
  done >"$work/sources.list"
  local options=(-qq -o "Dir::Etc::SourceList=$work/sources.list" -o Dir::Etc::SourceParts=/dev/null
    -o "Dir::State::Lists=$work/lists" -o "Dir::Cache=$work/cache")
  [ "$(id -u)" -ne 0 ] || options+=(-o APT::Sandbox::User=root)
  # One suite that the mirror lacks must not keep the others from being used; none at all ends below.
  apt-get "${options[@]}" update >"$work/update.log" 2>&1 || true
  versions=$(apt-cache "${options[@]}" showsrc criu | sed -n 's/^Version: //p' | sort -rV | uniq)
  for version in $versions; do
    dpkg --compare-versions "$version" ge "$CRIU_MINIMUM" || continue
    # A mirror may hold the index of a version whose file it has dropped; the next older one does as well.
    if (cd "$work" && apt-get "${options[@]}" source --download-only --tar-only "criu=$version") >"$work/fetch.log" 2>&1; then
      return
    fi
    note "criu $version is not to be had from the mirror"
  done
  tail -n 5 "$work"/update.log "$work"/fetch.log >&2 || true
  die "no source of CRIU >= $CRIU_MINIMUM found; install it yourself and set STASIS_CRIU"
}

criu_build() {
  local work=$STASIS_CACHE/criu/build
  note "building CRIU >= $CRIU_MINIMUM from Debian's source package into $STASIS_CACHE/criu"
  rm -rf "$work"
  mkdir -p "$work/src"
  criu_fetch_source "$work"
  tar -C "$work/src" --strip-components=1 -xf "$work"/criu_*.orig.tar.*
  quietly "$work/make.log" make -C "$work/src" -j"$(nproc)" criu
  mkdir -p "$STASIS_CACHE/criu/bin"
  install -m 0755 "$work/src/criu/criu" "$STASIS_CACHE/criu/bin/criu.new"
  mv "$STASIS_CACHE/criu/bin/criu.new" "$STASIS_CACHE/criu/bin/criu"
  rm -rf "$work"
}
