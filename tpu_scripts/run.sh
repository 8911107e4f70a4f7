#!/usr/bin/env bash
# Runs a command with --multihost on all workers of a TPU VM, to its end: makes
# and sets up the VM, starts the command again when it was preempted (exit code
# 75), and does all of it anew when the VM was taken away.
#
#   NAME=my-tpu ZONE=us-west4-a TYPE=v5litepod-16 SPOT=1 PREPARE='...' \
#     tpu_scripts/run.sh \
#     python -m experiments.train --config=FILE.py --workdir=/nfs/runs/mine
#
# Safe to run again: it comes back to a run that is going on; before it starts
# one, it sets up what has changed here. Ctrl-C leaves a run going, SIGTERM lets
# it save. Exit code: the command's; 75: it has saved. Settings: settings.sh.
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
  nap_no_more # what is in the background does not hear the key
  echo 'left; the same command comes back to the run' >&2
  exit 130
}

# await COMMAND...: asked to leave, so is it, and its end is waited for.
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

# ask: sets states to those of the workers; false where they do not answer.
ask() {
  local status=0
  states=$(on all "[ ! -e $worker ] || $worker state $command") || status=$?
  # The VM is another command's: nothing there is ours to change or delete.
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

# failure CODES: prints a worker's exit code that is none of these.
failure() {
  sed -n 's/^worker .*: exit //p' <<< "$states" | sort -n |
    grep -vxE "$1" | head -n 1 || true
}

# look: sets code to the exit code of the run; '' while it is at work.
look() {
  local now states
  now=$(state) || return 0
  case $now in
    ACTIVE) ;;
    ABSENT | DELETING)
      [ -z "$asked" ] || { code=75 && return; }
      # Nobody does that but a person, who wants no other.
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
    # A failure of one counts for all, and then that one was stopped. Of a lost
    # worker the others die, too (134), which is none. '': nothing is set up.
    *': gone'* | '')
      # With the VM, perhaps: then its state says so next time.
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
    # Of a VM that was just taken away another is made; else it is a mistake.
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
  echo "warning: $NAME is still there; delete.sh deletes it" >&2
exit "$code"
