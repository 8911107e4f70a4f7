#!/usr/bin/env bash
# Installs this checkout of xjax on all workers of a TPU VM.
#
#   NAME=my-tpu ZONE=us-west4-a \
#     PREPARE='sudo mkdir -p /nfs && sudo mount 10.0.0.2:/share /nfs' \
#     tpu_scripts/setup.sh
#
# Safe to run again: it installs what has changed. PREPARE must be safe to run
# again too.
# Settings: settings.sh.
# shellcheck source=tpu_scripts/settings.sh
source "$(dirname "$0")/settings.sh"
[ $# = 0 ] || usage tpu_scripts/setup.sh
check tpu_scripts/setup.sh

ready=$(mark)
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
tar --exclude=__pycache__ -czf "$folder/xjax.tar.gz" -C "$scripts/.." \
  "${installed[@]}"
reach all scp "$folder/xjax.tar.gz" "$NAME:"

# The Python of the images is too old for xjax, so uv installs a newer one. The
# last line tells run.sh that the setup is complete.
on all "set -e
rm -f xjax/ready
mkdir -p xjax
tar -xzf xjax.tar.gz -C xjax
python3 -m pip install --quiet --user uv
[ -x xjax/.venv/bin/python ] \
|| ~/.local/bin/uv venv --quiet --python=3.12 xjax/.venv
~/.local/bin/uv pip install --quiet --python=xjax/.venv -e 'xjax[tpu]'
${PREPARE:-true}
echo \"$ready\" > xjax/ready"
