#!/usr/bin/env bash
# Runs a command as a SLURM job (slurm.sbatch), and waits until it ends.
#
#   NAME=mine OPTIONS='--nodes=2 --ntasks-per-node=8 --gpus-per-node=8' \
#     tpu_scripts/slurm.sh \
#     python -m xjax train --config=FILE.py --workdir=/nfs/runs/mine
#
#   NAME     name of the job
#   OPTIONS  more options of sbatch, separated by spaces
#   LOG      file for the output of the job; default NAME.txt
#   POLL     seconds between two checks; default 10
#
# Safe to run again: it waits for an existing job with this NAME and command.
# Ctrl-C leaves the job running; SIGTERM makes it save and end. The exit code is
# the command's, or 75 if the run has saved.
# shellcheck source=tpu_scripts/waiting.sh
source "$(dirname "$0")/waiting.sh"
# shellcheck source=tpu_scripts/flags.sh
source "$(dirname "$0")/flags.sh"

if [ $# = 0 ] || [ -z "${NAME:-}" ]; then
  echo 'error: usage: NAME=... tpu_scripts/slurm.sh COMMAND...' >&2
  exit 1
fi
scripts=$(cd "$(dirname "$0")" && pwd)
log=${LOG:-$NAME.txt}
# A job's comment has at most 1,024 characters, so it holds a digest.
words=$(export LC_ALL=C && printf '%q ' "$@")
words=${words% }
digest=$(sha256sum <<< "$words")
digest=${digest%% *}

# find_job: prints id, digest and first words of a job with this NAME, if any.
find_job() {
  local user jobs
  user=$(id -un)
  jobs=$(squeue --noheader --user="$user" --name="$NAME" --format='%A %k') ||
    return
  echo "${jobs%%$'\n'*}"
}

submit() {
  local options
  read -ra options <<< "${OPTIONS:-}"
  sbatch --parsable --job-name="$NAME" --comment="$digest ${words:0:500}" \
    --output="$log" "${options[@]}" "$scripts/slurm.sbatch" "$@"
}

# leave STATE: makes the job save and end, and keeps it from being queued again.
leave() {
  if [ "$1" != RUNNING ]; then
    scancel --state=PENDING "$id"
  elif [ -z "$told" ]; then
    scontrol update "JobId=$id" Requeue=0 && scancel --signal=TERM "$id" &&
      told=1
  fi
}

# end CODE: prints how the job ended and exits with the code.
end() {
  echo "$NAME: job $id: $state, exit code $1; its output is in $log" >&2
  exit "$1"
}

found=$(find_job) || exit 1
read -r id known theirs <<< "$found"
if [ -z "$id" ]; then
  id=$(submit "$@")
  id=${id%%;*}
elif [ "$known" != "$digest" ]; then
  echo "error: $NAME: job $id runs another command: $theirs" >&2
  exit 1
fi
told=
while :; do
  if ! job=$(scontrol --oneliner show job "$id" 2>&1); then
    state=LOST
    [[ $job != *'Invalid job id'* ]] || end 1
  elif [[ $job =~ JobState=([A-Z_]+) ]]; then
    state=${BASH_REMATCH[1]}
    [[ $job =~ ExitCode=([0-9]+):([0-9]+) ]]
    code=${BASH_REMATCH[1]} signal=${BASH_REMATCH[2]}
    case $state in
      COMPLETED) end 0 ;;
      PREEMPTED | NODE_FAIL | BOOT_FAIL) end 75 ;;
      CANCELLED) end "$((${asked:-0} ? 75 : 1))" ;;
      FAILED) end "$((signal == 15 ? 75 : code ? code : 1))" ;;
      TIMEOUT | OUT_OF_MEMORY | DEADLINE) end 1 ;;
      *) [ -z "$asked" ] || leave "$state" || true ;;
    esac
  fi
  nap
done
