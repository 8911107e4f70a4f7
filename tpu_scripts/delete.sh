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

asked=
while now=$(state) && [ "$now" != ABSENT ]; do
  if [ -z "$asked" ] && [ "$now" != DELETING ]; then
    queued delete --force --quiet --async
    asked=1
  fi
  nap
done
[ "$now" = ABSENT ]
echo "$NAME: deleted" >&2
