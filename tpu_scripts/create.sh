#!/usr/bin/env bash
# Creates a TPU VM as a queued resource, and waits until it is ACTIVE. A VM that
# was taken away (SUSPENDED) or whose creation failed (FAILED) is created again.
#
#   NAME=my-tpu ZONE=us-west4-a TYPE=v5litepod-16 SPOT=1 tpu_scripts/create.sh
#
# Safe to run again: it waits for a VM that already exists. A VM that others
# delete meanwhile is not created again. Settings: settings.sh.
# shellcheck source=tpu_scripts/settings.sh
source "$(dirname "$0")/settings.sh"
[ $# = 0 ] && [ -n "${TYPE:-}" ] || usage 'TYPE=... tpu_scripts/create.sh'
check 'TYPE=... tpu_scripts/create.sh'

image() {
  case $TYPE in
    v5litepod-*) echo v2-alpha-tpuv5-lite ;;
    v5p-*) echo v2-alpha-tpuv5 ;;
    v6e-*) echo v2-alpha-tpuv6e ;;
    *) echo tpu-ubuntu2204-base ;;
  esac
}

create() {
  local options=("--node-id=$NAME")
  [ "${SLICES:-1}" = 1 ] ||
    options=("--node-count=$SLICES" "--node-prefix=$NAME")
  options+=("--accelerator-type=$TYPE")
  options+=("--runtime-version=${RUNTIME:-$(image)}" --async)
  [ "${SPOT:-0}" != 1 ] || options+=(--spot)
  # Another script may have created it first.
  queued create "${options[@]}" || [ "$(state)" != ABSENT ]
}

delete() {
  "$scripts/delete.sh"
  there=
}

created=
there=
before=
while :; do
  now=$(state)
  [ "$now" = "$before" ] || echo "$NAME: $now" >&2
  before=$now
  case $now in
    ACTIVE) exit 0 ;;
    ABSENT)
      if [ -n "$there" ]; then
        echo "error: $NAME: the TPU VM was deleted" >&2
        exit 1
      fi
      create
      created=1 there=1
      ;;
    DELETING) ;;
    SUSPENDED) delete ;;
    FAILED)
      # Only once: the requested VM may be impossible.
      if [ -n "$created" ]; then
        queued describe --format='yaml(state)' >&2
        echo "error: $NAME: the TPU VM could not be created" >&2
        exit 1
      fi
      delete
      ;;
    *) there=1 ;;
  esac
  nap
done
