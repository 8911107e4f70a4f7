# shellcheck shell=bash
# What the scripts for TPU VMs share. All settings are environment variables:
#
#   NAME     of the queued resource, and of the TPU VM that is its node
#   ZONE     where it is, such as us-west4-a
#   PROJECT  where it is paid; else that of gcloud's configuration
#   TYPE     create: such as v5litepod-16
#   RUNTIME  create: the image; else the one for JAX on this TYPE
#   SPOT     create: 1 (may be taken away at any time, and costs less) or 0
#   PREPARE  setup: a command for every worker after the install, such as the
#            mount of the workdirs, which must be on storage that all workers
#            see (NFS, Filestore, a bucket by gcsfuse)
#   DELETE   run: 1 deletes the TPU VM when the run has ended; else 0
#   WORKER   logs: of which worker; else 0
#   POLL     seconds between two looks; else 30
#   LEAVE    run: 1 ends what is at work, as SIGTERM does, and starts nothing
: "${POLL:=30}"
scripts=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=tpu_scripts/waiting.sh
source "$scripts/waiting.sh"
trap 'nap_no_more; exit 143' TERM

# shellcheck disable=SC2034
installed=(README.md pyproject.toml setup.py experiments tpu_scripts xjax)

usage() {
  echo "error: usage: NAME=... ZONE=... $1; tpu_scripts/settings.sh has all" >&2
  exit 1
}

# check USAGE: leaves where what every script needs is not set.
check() {
  [ -n "${NAME:-}" ] && [ -n "${ZONE:-}" ] || usage "$1"
  where=("--zone=$ZONE")
  [ -z "${PROJECT:-}" ] || where+=("--project=$PROJECT")
}

queued() {
  gcloud compute tpus queued-resources "$1" "$NAME" "${where[@]}" "${@:2}"
}

# state: of the queued resource; ABSENT where there is none.
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

# mark: what a worker has in xjax/ready, in words that it completes itself: its
# files and PREPARE are these, and it has not started anew, without its mounts.
mark() {
  local version
  version=$(
    cd "$scripts/.."
    {
      find "${installed[@]}" -type f ! -name '*.pyc' -print0 | sort -z |
        xargs -0 sha256sum
      echo "${PREPARE:-}"
    } | sha256sum
  )
  echo "${version%% *} \$(cat /proc/sys/kernel/random/boot_id)"
}

# on WORKERS COMMAND: runs it there, by ssh.
on() {
  gcloud compute tpus tpu-vm ssh "$NAME" "${where[@]}" --worker="$1" \
    --command="$2"
}
