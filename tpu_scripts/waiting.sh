# shellcheck shell=bash
# Functions that wait, for scripts that start work on other machines.
#
#   POLL  seconds between two checks; default 10
set -euo pipefail

: "${POLL:=10}"
# shellcheck disable=SC2034
asked=
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
