#!/usr/bin/env bash
# Jobs of all samples under faults at random, for as long as you like.
. "$(dirname "${BASH_SOURCE[0]}")/lib/common.sh"
. "$STASIS_ROOT/scripts/lib/criu.sh"

case "${1:-}" in
  -h|--help)
    cat <<'HELP'
usage: scripts/chaos.sh [--minutes M] [--seed N] [--only RUN] [--first RUN] [--print] [--json FILE] [--keep-going]
Sets up and builds what is missing. Each run is one job of samples/ on two nodes with agents, from its start to its end: it is
paused, checkpointed, ended by an image and restored, and moved, while processes of every kind are killed and stopped, disks are
full, networks slow or cut, memory and devices run out or are lost, the clock is stepped, and files are damaged. It passes when it
prints what it prints undisturbed, and nothing of it is left: no process, device memory, descriptor, file, mount or table, and a
store that verifies. Totals are printed at the end.
  --minutes M   begin runs for so long (20)
  --seed N      another campaign (1); the same seed and run decide the same
  --only RUN    this run alone; may be repeated
  --first RUN   begin with it
  --print       tell what would be done
  --json FILE   the totals, for programs
  --keep-going  after a run that has failed, which by default ends the campaign
HELP
    exit 0 ;;
esac

step "setup"
"$STASIS_ROOT/scripts/setup.sh"
step "build"
"$STASIS_ROOT/scripts/build.sh" release
STASIS_CRIU=$(criu_find)
export STASIS_CRIU STASIS_BUILD_DIR=$STASIS_ROOT/build/release
exec /usr/bin/python3 -B "$STASIS_ROOT/tests/chaos/campaign.py" --minutes 20 "$@"
