#!/usr/bin/env bash
# Runs a command as a JobSet (jobset.yaml), and waits for its end.
#
#   NAME=mine IMAGE=... ACCELERATOR=tpu-v5-lite-podslice TOPOLOGY=4x4 HOSTS=4 \
#     DEVICES=4 CLAIM=nfs tpu_scripts/jobset.sh \
#     python -m experiments.train --config=FILE.py --workdir=/shared/runs/mine
#
#   NAME         of the JobSet
#   IMAGE        of a container with xjax: [tpu], or [gpu,k8s] on GPUs
#   ACCELERATOR  as GKE names it: cloud.google.com/gke-tpu-accelerator, or
#                without TOPOLOGY cloud.google.com/gke-accelerator
#   TOPOLOGY     of the TPU; none: GPUs
#   HOSTS        processes, one on each; else 1
#   DEVICES      chips or GPUs of each; else 1
#   SPOT         1: on spot nodes, which may be taken away; else 0
#   CLAIM        a PersistentVolumeClaim that all hosts may write at once (NFS,
#                Filestore), for workdirs and data
#   SHARED       where it is in the container; else /shared
#   POLL         seconds between two looks; else 10
#
# Once in a namespace: kubectl apply -f tpu_scripts/jobset_access.yaml
#
# Safe to run again: it waits for a JobSet of this NAME that is there. Ctrl-C
# leaves it, SIGTERM deletes it, whereupon it saves. Exit code: the command's;
# 75: it has saved. The JobSet is deleted at its end.
set -euo pipefail

for setting in NAME IMAGE ACCELERATOR CLAIM; do
  if [ $# = 0 ] || [ -z "${!setting:-}" ]; then
    echo 'error: usage: NAME=... IMAGE=... ACCELERATOR=... CLAIM=...' \
      'tpu_scripts/jobset.sh COMMAND...; its first lines say more' >&2
    exit 1
  fi
done
label=jobset.sigs.k8s.io/jobset-name=$NAME

asked=
nap=
trap 'asked=1; [ -z "$nap" ] || kill "$nap" || true' TERM

# json WORDS...: a list of them.
json() {
  local list='' word
  for word in "$@"; do
    word=${word//\\/\\\\}
    list+=", \"${word//\"/\\\"}\""
  done
  echo "[${list:2}]"
}

manifest() {
  local kind=cloud.google.com/gke-accelerator device=nvidia.com/gpu nodes text
  if [ -n "${TOPOLOGY:-}" ]; then
    kind=cloud.google.com/gke-tpu-accelerator device=google.com/tpu
  fi
  nodes="\"$kind\": \"$ACCELERATOR\""
  [ -z "${TOPOLOGY:-}" ] ||
    nodes+=", \"cloud.google.com/gke-tpu-topology\": \"$TOPOLOGY\""
  [ "${SPOT:-0}" != 1 ] || nodes+=', "cloud.google.com/gke-spot": "true"'
  text=$(cat "$(dirname "$0")/jobset.yaml")
  text=${text//\$NAME/"$NAME"}
  text=${text//\$IMAGE/"$IMAGE"}
  text=${text//\$HOSTS/"${HOSTS:-1}"}
  text=${text//\$DEVICES/"${DEVICES:-1}"}
  text=${text//\$DEVICE/"$device"}
  text=${text//\$CLAIM/"$CLAIM"}
  text=${text//\$SHARED/"${SHARED:-/shared}"}
  text=${text//\$NODES/"{$nodes}"}
  echo "${text//\$COMMAND/"$(json "$@" --multihost)"}"
}

# state: nothing where there is none; NAME, then how it ended, if it has.
state() {
  kubectl get jobset "$NAME" --ignore-not-found \
    --output='jsonpath={.metadata.name} {.status.terminalState}'
}

delete() {
  kubectl delete jobset "$NAME" --cascade=foreground --ignore-not-found >&2
}

# end CODE
end() {
  delete
  exit "$1"
}

failed() {
  local codes
  kubectl logs --tail=20 \
    --selector="$label,batch.kubernetes.io/job-completion-index=0" || true
  codes=$(kubectl get pods --selector="$label" --output=jsonpath='
    {.items[*].status.containerStatuses[0].state.terminated.exitCode}' || true)
  codes=$(tr -s ' ' '\n' <<< "$codes" | grep -E . | grep -vxE '0|75|143') ||
    codes=1
  end "${codes%%$'\n'*}"
}

now=$(state)
[ -n "$now" ] || manifest "$@" | kubectl apply --filename=- >&2
while :; do
  [ -z "$asked" ] || end 75
  if now=$(state); then
    case $now in
      '') echo "error: $NAME: the JobSet was deleted" >&2 && exit 1 ;;
      *' Complete'*) end 0 ;;
      *' Failed') failed ;;
    esac
  fi
  sleep "${POLL:-10}" &
  nap=$!
  wait "$nap" || true
  nap=
done
