#!/usr/bin/env bash
# Installs what scripts/package.sh has made into a new Debian 12 that has nothing else, as a user would, and uses it there.
. "$(dirname "${BASH_SOURCE[0]}")/lib/common.sh"

case "${1:-}" in
  "") ;;
  -h|--help)
    cat <<'HELP'
usage: scripts/check_package.sh   (as root; scripts/package.sh first)
Makes a minimal Debian 12 in a temporary folder (debootstrap), with apt's configuration of this machine, installs the packages in it,
and there: runs, checkpoints and restores a program on a software device, starts scheduler and agent, and submits a job.
HELP
    exit 0 ;;
  *) usage_error "unknown argument '$1'" ;;
esac
[ "$(id -u)" -eq 0 ] || die "needs root"
install_packages debootstrap
packages=("$STASIS_ROOT"/build/release/packages/*.deb)
[ -e "${packages[0]}" ] || die "no packages: run scripts/package.sh"
"$STASIS_ROOT/scripts/build.sh" release sample_counter

root=$(mktemp -d)
trap 'rm -rf --one-file-system "$root"' EXIT
mirror=$(apt-get indextargets --format '$(SITE) $(CODENAME) $(RELEASE) $(COMPONENT)' |
  awk '$NF == "main" && ($2 == "bookworm" || $3 == "bookworm") {print $1; exit}')
[ -n "$mirror" ] || die "apt's configuration of this machine names no mirror of Debian 12 (bookworm): add one to its sources"
step "a bare Debian 12"
quietly "$STASIS_CACHE/log/debootstrap.log" debootstrap --variant=minbase bookworm "$root" "$mirror"
cp -r /etc/apt/apt.conf.d/. "$root/etc/apt/apt.conf.d/"
cp -L /etc/resolv.conf "$root/etc/resolv.conf"
cp "${packages[@]}" "$STASIS_ROOT/build/release/samples/counter" "$root/root/"
cat >"$root/root/check.sh" <<'CHECK'
set -ex
export DEBIAN_FRONTEND=noninteractive SOFTGPU_GPUS=2 STASIS_SCHEDULER=unix:/run/stasis/schedd.sock
apt-get -qq update
apt-get -qq install -y --no-install-recommends /root/*.deb >/root/apt.log 2>&1 || { tail -n 20 /root/apt.log; exit 1; }
! ldd /usr/bin/stasis /usr/bin/stasisd /usr/bin/stasis-schedd /usr/lib/stasis/stasis-ghost /usr/lib/stasis/criu | grep "not found"
stasis doctor
stasis run --name counter --detach -- /root/counter --port 0
stasis checkpoint counter --stop
stasis restore counter --gpus 1 --detach
stasis ps | grep -q "^counter *running"
stasis cancel counter --embedded
# `follow PROGRAM MARK`: starts it and waits until its log says so.
follow() {
  mkfifo "/root/$1.log"
  "$@" 2>"/root/$1.log" &
  exec {log}<"/root/$1.log"
  while read -r line <&"$log"; do case "$line" in *"\"$mark\""*) break ;; esac; done
  cat <&"$log" >/dev/null &
}
mark=ready follow stasis-schedd
mark=joined follow stasisd --join "$STASIS_SCHEDULER"
# What it has is known once the scheduler has reached it.
timeout 60 sh -c 'until stasis nodes --json | grep -q "\"reachable\": *true"; do sleep 0.2; done'
stasis tenants set root 1
stasis events --follow >/root/events &
stasis submit --name job -- /root/counter --port 0
timeout 60 sh -c 'tail -n +1 -f /root/events | grep -m 1 -q "started"'
stasis queue
stasis cancel job
apt-get -qq install -y --no-install-recommends systemd >/dev/null 2>&1
systemd-analyze verify --man=no /usr/lib/systemd/system/stasisd.service /usr/lib/systemd/system/stasis-schedd.service
dpkg -V $(dpkg-query -W -f '${Package}\n' | grep ^stasis)
apt-get -qq remove -y stasis >/dev/null 2>&1
# The interposer stays, for tasks and images that need it.
ls /usr/lib/stasis/*/libstasis.so
CHECK
step "the packages in it"
# A container of its own: what is started in it ends with it.
unshare --mount --pid --uts --ipc --fork --kill-child bash -ec '
  mount --make-rprivate /
  mount --bind "$1" "$1"
  cd "$1"
  mount -t proc proc proc; mount --rbind /sys sys; mount --rbind /dev dev; mount -t tmpfs tmpfs run; mount -t tmpfs tmpfs tmp
  mkdir old && pivot_root . old && cd / && umount -l /old && rmdir /old
  exec env -i HOME=/root PATH=/usr/sbin:/usr/bin:/sbin:/bin bash /root/check.sh' bash "$root"
echo "check_package: PASS"
