#!/usr/bin/env bash
# Shows the log of a worker of a TPU VM from its start, and follows it.
#
#   NAME=my-tpu ZONE=us-west4-a WORKER=0 tpu_scripts/logs.sh
#
# Settings: settings.sh.
# shellcheck source=tpu_scripts/settings.sh
source "$(dirname "$0")/settings.sh"
[ $# = 0 ] || usage tpu_scripts/logs.sh
check tpu_scripts/logs.sh

on "${WORKER:-0}" 'tail -n +1 -F xjax_run/log'
