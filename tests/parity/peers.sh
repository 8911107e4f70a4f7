#!/usr/bin/env bash
# Makes the peers' environment from peers.txt and prints its Python.
#
#   tests/parity/peers.sh        (safe to run again: does nothing when made)
#
# It lies in $XJAX_PEERS_DIR, or else in ~/.cache/xjax/peers. $PYTHON makes it.
set -euo pipefail
list="$(dirname "$0")/peers.txt"
peers="${XJAX_PEERS_DIR:-$HOME/.cache/xjax/peers}"
if ! cmp -s "$list" "$peers/made_from.txt"; then
  "${PYTHON:-python3}" -m venv --clear "$peers"
  # First and alone, so that nothing else chooses another build of it.
  "$peers/bin/pip" install --quiet "$(grep '^torch==' "$list")" >&2
  "$peers/bin/pip" install --quiet -r "$list" >&2
  cp "$list" "$peers/made_from.txt" # last: half an environment is made anew
fi
echo "$peers/bin/python"
