#!/usr/bin/env bash
# Deletes a queued resource with its TPU VM, and waits until it is gone.
#
#   NAME=my-tpu ZONE=us-west4-a tpu_scripts/delete.sh
#
# Safe to run again. Settings: settings.sh.
# shellcheck source=tpu_scripts/settings.sh
source "$(dirname "$0")/settings.sh"
[ $# = 0 ] || usage tpu_scripts/delete.sh
check tpu_scripts/delete.sh

told=
failures=0
while now=$(state) && [ "$now" != ABSENT ]; do
  if [ -z "$told" ] && [ "$now" != DELETING ]; then
    if queued delete --force --quiet --async; then
      told=1
    else
      failures=$((failures + 1))
      [ "$failures" -lt 3 ] || exit 1
    fi
  fi
  nap
done
[ "$now" = ABSENT ]
echo "$NAME: deleted" >&2
