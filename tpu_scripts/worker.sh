#!/usr/bin/env bash
# Runs a command on a worker of a TPU VM, for run.sh. The command continues
# after the ssh session that starts it, and never runs twice at the same time.
#
#   worker.sh start COMMAND...   starts the command if it is not running
#   worker.sh state COMMAND...   prints worker HOST: running | exit CODE | gone
#   worker.sh stop COMMAND...    asks the command to save and end
#
# Exit code 3: another command is running. The folder ~/xjax_run has the log of
# the command, its exit code and, while it is running, a lock.
set -euo pipefail

verb=${1:-}
[ $# = 0 ] || shift
words=$*
mkdir -p ~/xjax_run
cd ~/xjax_run
exec 9>> lock

# free OPTIONS: takes the lock; fails while the command is running.
free() {
  ! flock "$@" 9 || return 0
  [ "$words" != "$(cat words)" ] || return 1
  echo "error: another command is running here: $(cat words)" >&2
  exit 3
}

case $verb in
  start)
    free --wait=1 || exit 0 # `state` holds the lock for a moment
    rm -f code pid asked
    echo "$words" > words
    export PATH=~/xjax/.venv/bin:$PATH
    # Only this shell holds the lock, not processes that the command leaves.
    # shellcheck disable=SC2016
    setsid bash -c '
      (cd ~/xjax && exec "$@" 9>&-) &
      echo $! > pid
      wait $! && code=0 || code=$?
      echo $code > code.new
      mv code.new code' bash "$@" >> log 2>&1 < /dev/null &
    ;;
  state)
    # The order matters: the code is written before the lock is released.
    lives=
    free --shared --nonblock || lives=1
    if [ -e code ] && [ "$words" = "$(cat words)" ]; then
      echo "worker $(hostname): exit $(cat code)"
    elif [ -n "$lives" ]; then
      echo "worker $(hostname): running"
    else
      echo "worker $(hostname): gone" # the machine has rebooted
    fi
    ;;
  stop)
    # SIGTERM is sent only once: a command that is ending does not handle it.
    if ! free --shared --nonblock &&
      [ -e pid ] && ! [ -e code ] && ! [ -e asked ]; then
      touch asked
      kill -TERM "$(cat pid)" || true
    fi
    ;;
  *)
    echo 'error: usage: worker.sh start | state | stop COMMAND...' >&2
    exit 1
    ;;
esac
