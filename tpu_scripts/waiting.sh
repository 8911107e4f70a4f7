# shellcheck shell=bash
# How the scripts that wait for something far away do so.
#
#   POLL   seconds between two looks; else 10
#   LEAVE  1: as if SIGTERM had come at once, which may come before a script
#          listens: starts nothing, and ends what is at work
set -euo pipefail

: "${POLL:=10}"
asked=
# shellcheck disable=SC2034
[ "${LEAVE:-0}" != 1 ] || asked=1
trap 'asked=1; nap_no_more' TERM

# nap: where signals are heard at once, not when it is over.
nap() {
  sleep "$POLL" &
  wait $! || true
}

nap_no_more() {
  local naps
  mapfile -t naps < <(jobs -pr)
  [ ${#naps[@]} = 0 ] || kill "${naps[@]}" || true
}
