#!/usr/bin/env bash
# Runs a command as a JobSet (jobset.yaml), and waits until it ends.
#
#   NAME=mine IMAGE=... ACCELERATOR=tpu-v5-lite-podslice TOPOLOGY=4x4 HOSTS=4 \
#     DEVICES=4 CLAIM=nfs tpu_scripts/jobset.sh \
#     python -m xjax train --config=FILE.py --workdir=/shared/runs/mine
#
#   NAME         name of the JobSet
#   IMAGE        container image with xjax: [tpu], or [gpu,k8s] on GPUs
#   ACCELERATOR  value of cloud.google.com/gke-tpu-accelerator in GKE, or without
#                TOPOLOGY of cloud.google.com/gke-accelerator
#   TOPOLOGY     topology of the TPU; not set: GPUs
#   SLICES       number of TPU slices of this topology; default 1
#   HOSTS        number of hosts (of a slice), with one process each; default 1
#   DEVICES      number of chips or GPUs per host; default 1
#   SPOT         1: use spot nodes, which may be taken away; default 0
#   CLAIM        a PersistentVolumeClaim for workdirs and data that all hosts
#                can write at the same time (NFS, Filestore)
#   SHARED       path of the claim in the container; default /shared
#   RESTARTS     maximum number of restarts, for spot nodes; default 100
#   POLL         seconds between two checks; default 10
#
# Run once per namespace: kubectl apply -f tpu_scripts/jobset_access.yaml
#
# Safe to run again: it waits for an existing JobSet with this NAME and command.
# Ctrl-C leaves the JobSet running. SIGTERM deletes it; the run saves first. The
# exit code is the command's, or 75 if the run has saved. The JobSet is deleted
# when it ends.
# shellcheck source=tpu_scripts/waiting.sh
source "$(dirname "$0")/waiting.sh"
# shellcheck source=tpu_scripts/flags.sh
source "$(dirname "$0")/flags.sh"

for setting in NAME IMAGE ACCELERATOR CLAIM; do
  if [ $# = 0 ] || [ -z "${!setting:-}" ]; then
    echo 'error: usage: NAME=... IMAGE=... ACCELERATOR=... CLAIM=...' \
      'tpu_scripts/jobset.sh COMMAND...; see the first lines of jobset.sh' >&2
    exit 1
  fi
done
label=jobset.sigs.k8s.io/jobset-name=$NAME
words=$(export LC_ALL=C && printf '%q ' "$@")
words=${words% }

# json WORDS...: prints the words as JSON strings, separated by commas.
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
  local nodes notes text variable env=
  if [ -n "${TOPOLOGY:-}" ]; then
    kind=cloud.google.com/gke-tpu-accelerator device=google.com/tpu
  else
    for variable in XLA_FLAGS XLA_CLIENT_MEM_FRACTION; do
      env+=", {\"name\": \"$variable\", \"value\": $(json "${!variable}")}"
    done
  fi
  nodes="\"$kind\": \"$ACCELERATOR\""
  [ -z "${TOPOLOGY:-}" ] ||
    nodes+=", \"cloud.google.com/gke-tpu-topology\": \"$TOPOLOGY\""
  [ "${SPOT:-0}" != 1 ] || nodes+=', "cloud.google.com/gke-spot": "true"'
  notes="\"command\": $(json "$words")"
  # The hosts of a TPU slice are the nodes of one pool.
  [ -z "${TOPOLOGY:-}" ] || [ "${HOSTS:-1}${SLICES:-1}" = 11 ] ||
    notes+=", \"$alone\": \"cloud.google.com/gke-nodepool\""
  text=$(cat "$(dirname "$0")/jobset.yaml")
  text=${text//\$NAME/"$NAME"}
  text=${text//\$IMAGE/"$IMAGE"}
  text=${text//\$SLICES/"${SLICES:-1}"}
  text=${text//\$ENV/"[${env:2}]"}
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

# look FIELDS: prints fields of the JobSet; nothing if there is no JobSet.
look() {
  kubectl get jobset "$NAME" --ignore-not-found --output="jsonpath=$1"
}

delete() {
  kubectl delete jobset "$NAME" --cascade=foreground --ignore-not-found >&2
}

# end CODE: deletes the JobSet and exits with the code.
end() {
  for _ in 1 2 3; do
    ! delete || exit "$1"
    nap
  done
  echo "warning: $NAME: the JobSet has ended, but could not be deleted" >&2
  exit "$1"
}

failed() {
  local codes code
  kubectl logs --tail=20 \
    --selector="$label,batch.kubernetes.io/job-completion-index=0" || true
  codes=$(kubectl get pods --selector="$label" --output=jsonpath='
    {.items[*].status.containerStatuses[0].state.terminated.exitCode}' || true)
  codes=$(tr -s ' ' '\n' <<< "$codes" | sed 's/^143$/75/')
  # The code of a host that failed by itself; otherwise restarts ran out.
  code=$(grep -vxE '|0|75|134' <<< "$codes" || grep -x 134 <<< "$codes" ||
    grep -x 75 <<< "$codes" || echo 1)
  end "${code%%$'\n'*}"
}

found=$(look '{.metadata.name} {.metadata.annotations.command}') || exit 1
if [ -z "$found" ]; then
  manifest "$@" | kubectl apply --filename=- >&2
elif [ "$found" != "$NAME $words" ]; then
  echo "error: $NAME: the JobSet runs another command: ${found#* }" >&2
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
