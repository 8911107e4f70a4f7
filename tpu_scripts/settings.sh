# shellcheck shell=bash
# Functions and settings of the scripts for TPU VMs. All settings are
# environment variables; "create:" etc. name the script that uses a setting:
#
#   NAME     name of the queued resource and of its TPU VM
#   ZONE     zone of the VM, such as us-west4-a
#   PROJECT  project that pays; default: the one in gcloud's configuration
#   TYPE     create: type of the TPU, such as v5litepod-16
#   RUNTIME  create: image of the VM; default: the image for JAX on this TYPE
#   SLICES   number of slices of this TYPE, each a TPU VM; default 1
#   SPOT     create: 1 (cheaper, but may be taken away at any time) or 0
#   PREPARE  setup: a command that every worker runs after the install, such as
#            mounting the workdirs, which must be on storage that all workers
#            see (NFS, Filestore, a bucket by gcsfuse)
#   DELETE   run: 1 deletes the TPU VM when the run has ended; default 0
#   WORKER   logs: number of the worker; default 0
#   POLL     seconds between two checks; default 30
: "${POLL:=30}"
scripts=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=tpu_scripts/waiting.sh
source "$scripts/waiting.sh"
trap 'nap_no_more; exit 143' TERM

# shellcheck disable=SC2034
installed=(README.md pyproject.toml setup.py experiments tpu_scripts xjax)

usage() {
  echo "error: usage: NAME=... ZONE=... $1; see tpu_scripts/settings.sh" >&2
  exit 1
}

# check USAGE: exits if a setting that every script needs is missing.
check() {
  [ -n "${NAME:-}" ] && [ -n "${ZONE:-}" ] || usage "$1"
  where=("--zone=$ZONE")
  [ -z "${PROJECT:-}" ] || where+=("--project=$PROJECT")
}

queued() {
  gcloud compute tpus queued-resources "$1" "$NAME" "${where[@]}" "${@:2}"
}

# state: prints the state of the queued resource; ABSENT if there is none.
state() {
  local answer
  for _ in 1 2 3; do
    if answer=$(queued describe --format='value(state.state)' 2>&1); then
      echo "${answer##*$'\n'}"
      return
    elif [[ $answer == *NOT_FOUND* ]]; then
      echo ABSENT
      return
    fi
    nap
  done
  echo "$answer" >&2
  return 1
}

# mark: prints the text that a worker has in xjax/ready if its files and PREPARE
# are up to date and it was not rebooted, which loses its mounts. The worker's
# shell completes the text with its boot id.
mark() {
  local version
  version=$(
    cd "$scripts/.."
    {
      find "${installed[@]}" -name __pycache__ -prune -o -type f -print0 |
        sort -z | xargs -0 sha256sum
      echo "${PREPARE:-}"
    } | sha256sum
  )
  echo "${version%% *} \$(cat /proc/sys/kernel/random/boot_id)"
}

# reach WORKERS VERB ARGUMENTS: ssh or scp; "all" are the workers of all slices.
reach() {
  local kind=tpu-vm options=("${where[@]}" "--worker=$1")
  if [ "${SLICES:-1}" -gt 1 ]; then
    kind=queued-resources
    [ "$1" != all ] || options+=(--node=all)
  fi
  gcloud compute tpus "$kind" "${@:2}" "${options[@]}"
}

# on WORKERS COMMAND: runs a command on workers by ssh.
on() {
  reach "$1" ssh "$NAME" --command="$2"
}
