# shellcheck shell=bash
# Functions that wait, for scripts that start work on other machines.
#
#   POLL   seconds between two checks; default 10
#   LEAVE  1: act as if SIGTERM had come at the start: end a running command and
#          start nothing; a real SIGTERM may come before a script can handle it
set -euo pipefail

: "${POLL:=10}"
asked=
# shellcheck disable=SC2034
[ "${LEAVE:-0}" != 1 ] || asked=1
trap 'asked=1; nap_no_more' TERM

# nap: sleeps for POLL seconds, but handles a signal at once.
nap() {
  sleep "$POLL" &
  wait $! || true
}

nap_no_more() {
  local naps
  mapfile -t naps < <(jobs -pr)
  [ ${#naps[@]} = 0 ] || kill "${naps[@]}" || true
}
