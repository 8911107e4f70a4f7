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
#   RESTARTS     at most, as of spot nodes; else 100
#   POLL         seconds between two looks; else 10
#   LEAVE        1 ends the JobSet, as SIGTERM does, and makes none
#
# Once in a namespace: kubectl apply -f tpu_scripts/jobset_access.yaml
#
# Safe to run again: it waits for a JobSet of this NAME and command that is
# there. Ctrl-C leaves it, SIGTERM deletes it, whereupon it saves. Exit code: the
# command's; 75: it has saved. The JobSet is deleted at its end.
# shellcheck source=tpu_scripts/waiting.sh
source "$(dirname "$0")/waiting.sh"

for setting in NAME IMAGE ACCELERATOR CLAIM; do
  if [ $# = 0 ] || [ -z "${!setting:-}" ]; then
    echo 'error: usage: NAME=... IMAGE=... ACCELERATOR=... CLAIM=...' \
      'tpu_scripts/jobset.sh COMMAND...; its first lines say more' >&2
    exit 1
  fi
done
label=jobset.sigs.k8s.io/jobset-name=$NAME
words=$(export LC_ALL=C && printf '%q ' "$@")
words=${words% }

# json WORDS...: each as JSON, with commas between.
json() {
  local list='' word
  for word in "$@"; do
    word=${word//\\/\\\\}
    word=${word//\"/\\\"}
    word=${word//$'\n'/\\n}
    list+=", \"${word//$'\t'/\\t}\""
  done
  echo "${list:2}"
}

manifest() {
  local alone=alpha.jobset.sigs.k8s.io/exclusive-topology
  local kind=cloud.google.com/gke-accelerator device=nvidia.com/gpu
  local nodes notes text
  if [ -n "${TOPOLOGY:-}" ]; then
    kind=cloud.google.com/gke-tpu-accelerator device=google.com/tpu
  fi
  nodes="\"$kind\": \"$ACCELERATOR\""
  [ -z "${TOPOLOGY:-}" ] ||
    nodes+=", \"cloud.google.com/gke-tpu-topology\": \"$TOPOLOGY\""
  [ "${SPOT:-0}" != 1 ] || nodes+=', "cloud.google.com/gke-spot": "true"'
  notes="\"command\": $(json "$words")"
  # The hosts of one TPU slice are the nodes of one pool.
  [ -z "${TOPOLOGY:-}" ] || [ "${HOSTS:-1}" = 1 ] ||
    notes+=", \"$alone\": \"cloud.google.com/gke-nodepool\""
  text=$(cat "$(dirname "$0")/jobset.yaml")
  text=${text//\$NAME/"$NAME"}
  text=${text//\$IMAGE/"$IMAGE"}
  text=${text//\$HOSTS/"${HOSTS:-1}"}
  text=${text//\$DEVICES/"${DEVICES:-1}"}
  text=${text//\$DEVICE/"$device"}
  text=${text//\$RESTARTS/"${RESTARTS:-100}"}
  text=${text//\$CLAIM/"$CLAIM"}
  text=${text//\$SHARED/"${SHARED:-/shared}"}
  text=${text//\$NODES/"{$nodes}"}
  text=${text//\$NOTES/"{$notes}"}
  echo "${text//\$COMMAND/"[$(json "$@" --multihost)]"}"
}

# look FIELDS: of the JobSet; nothing where there is none.
look() {
  kubectl get jobset "$NAME" --ignore-not-found --output="jsonpath=$1"
}

delete() {
  kubectl delete jobset "$NAME" --cascade=foreground --ignore-not-found >&2
}

# end CODE
end() {
  for _ in 1 2 3; do
    ! delete || exit "$1"
    nap
  done
  echo "warning: $NAME: the JobSet has ended, and is still there" >&2
  exit "$1"
}

failed() {
  local codes code
  kubectl logs --tail=20 \
    --selector="$label,batch.kubernetes.io/job-completion-index=0" || true
  codes=$(kubectl get pods --selector="$label" --output=jsonpath='
    {.items[*].status.containerStatuses[0].state.terminated.exitCode}' || true)
  codes=$(tr -s ' ' '\n' <<< "$codes" | sed 's/^143$/75/')
  # What failed by itself; else it was started again too often.
  code=$(grep -vxE '|0|75|134' <<< "$codes" || grep -x 134 <<< "$codes" ||
    grep -x 75 <<< "$codes" || echo 1)
  end "${code%%$'\n'*}"
}

until found=$(look '{.metadata.name} {.metadata.annotations.command}'); do
  [ -n "$asked" ] || exit 1
  nap
done
if [ -z "$found" ]; then
  [ -z "$asked" ] || exit 75
  manifest "$@" | kubectl apply --filename=- >&2
elif [ "$found" != "$NAME $words" ]; then
  echo "error: $NAME: the JobSet is another command: ${found#* }" >&2
  exit 1
fi
while :; do
  if [ -n "$asked" ]; then
    ! delete || exit 75
  elif now=$(look '{.metadata.name} {.status.terminalState}'); then
    case $now in
      '') echo "error: $NAME: the JobSet was deleted" >&2 && exit 1 ;;
      *' Complete'*) end 0 ;;
      *' Failed') failed ;;
    esac
  fi
  nap
done
