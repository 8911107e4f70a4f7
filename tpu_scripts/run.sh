#!/usr/bin/env bash
# Runs a command with --multihost on all workers of a TPU VM until it ends. The
# script creates and sets up the VM, starts the command again if it was
# preempted (exit code 75), and repeats everything if the VM was taken away.
#
#   NAME=my-tpu ZONE=us-west4-a TYPE=v5litepod-16 SPOT=1 PREPARE='...' \
#     tpu_scripts/run.sh \
#     python -m xjax train --config=FILE.py --workdir=/nfs/runs/mine
#
# Safe to run again: it returns to a run that is still running. Before it starts
# a run, it installs local changes on the workers. Ctrl-C leaves the run
# running; SIGTERM makes the run save and end. The exit code is the command's,
# or 75 if the run has saved. Settings: settings.sh.
# shellcheck source=tpu_scripts/settings.sh
source "$(dirname "$0")/settings.sh"
[ $# -gt 0 ] || usage 'TYPE=... tpu_scripts/run.sh COMMAND...'
check 'TYPE=... tpu_scripts/run.sh COMMAND...'
worker=xjax/tpu_scripts/worker.sh
printf -v command '%q ' "$@" --multihost

before=
trap 'asked=1; nap_no_more' TERM
trap left INT

# shellcheck disable=SC2329
left() {
  nap_no_more # background processes do not receive Ctrl-C
  echo 'left the run; run the same command again to return to it' >&2
  exit 130
}

# await COMMAND...: runs a command and waits for it; passes SIGTERM on to it.
await() {
  local status=0 job
  "$@" &
  job=$!
  [ -z "$asked" ] || nap_no_more
  wait "$job" || status=$?
  while [ -n "$(jobs -pr)" ]; do
    wait "$job" || status=$?
  done
  return "$status"
}

# ask: sets `states` to the states of the workers; fails if they do not answer.
ask() {
  local status=0
  states=$(on all "[ ! -e $worker ] || $worker state $command") || status=$?
  # The VM runs another command, so we must not change or delete it.
  [ "$status" != 3 ] || exit 1
  return "$status"
}

started() {
  local states
  ask || return
  [[ $states != *': running'* ]] || return 0
  on all "grep -sqxF \"$(mark)\" xjax/ready" || await "$scripts/setup.sh" ||
    return
  on all "$worker start $command"
}

# failure CODES: prints the first exit code of a worker that is not in CODES.
failure() {
  sed -n 's/^worker .*: exit //p' <<< "$states" | sort -n |
    grep -vxE "$1" | head -n 1 || true
}

# look: sets `code` to the exit code of the run; '' while it is running.
look() {
  local now states
  now=$(state) || return 0
  case $now in
    ACTIVE) ;;
    ABSENT | DELETING)
      [ -z "$asked" ] || { code=75 && return; }
      # Only a person deletes a VM, and does not want another one.
      echo "error: $NAME: the TPU VM was deleted" >&2
      code=1 && return
      ;;
    *) code=75 && return ;;
  esac
  ask || return 0
  [ "$states" = "$before" ] || echo "$states" >&2
  before=$states
  case $states in
    *': gone'*': running'* | *': running'*': gone'*)
      on all "$worker stop $command" || true
      ;;
    *': running'*) [ -z "$asked" ] || on all "$worker stop $command" || true ;;
    # A failure of one worker counts for all. If a worker is lost, the others
    # abort (134), which does not count as a failure. '': nothing is set up.
    *': gone'* | '')
      # The VM may be gone too; then its state shows that at the next check.
      [ "$(state)" = ACTIVE ] || return 0
      code=$(failure '0|75|134|143')
      code=${code:-75}
      ;;
    *)
      code=$(failure '0|75|143')
      [[ -n $code || ! $states =~ \ 75|\ 143 ]] || code=75
      code=${code:-0}
      ;;
  esac
}

watch() {
  code=
  while [ -z "$code" ]; do
    nap
    look
  done
}

code=75
failures=0
[ -z "$asked" ] || watch
while [ "$code" = 75 ] && [ -z "$asked" ]; do
  await "$scripts/create.sh" || { code=$((${asked:-0} ? 75 : 1)) && break; }
  if ! started; then
    # A VM may just have been taken away, so try again; three failures in a row
    # are an error.
    failures=$((failures + 1))
    [ "$failures" -lt 3 ] || code=1
    nap
    continue
  fi
  failures=0
  watch
done

if [ "$code" != 0 ] && [ "$code" != 75 ]; then
  on 0 'tail -n 20 xjax_run/log' || true
fi
[ "${DELETE:-0}" != 1 ] || "$scripts/delete.sh" ||
  echo "warning: $NAME still exists; delete it with delete.sh" >&2
exit "$code"
