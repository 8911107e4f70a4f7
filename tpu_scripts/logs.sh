#!/usr/bin/env bash
# Follows what a worker of a TPU VM prints, from the start of its log on.
#
#   NAME=my-tpu ZONE=us-west4-a WORKER=0 tpu_scripts/logs.sh
#
# Settings: settings.sh.
# shellcheck source=tpu_scripts/settings.sh
source "$(dirname "$0")/settings.sh"
[ $# = 0 ] || usage tpu_scripts/logs.sh
check tpu_scripts/logs.sh

on "${WORKER:-0}" 'tail -n +1 -F xjax_run/log'
