#!/usr/bin/env bash
# On a worker of a TPU VM, for run.sh: a command that outlives the ssh that
# starts it, never twice at once.
#
#   worker.sh start COMMAND...   starts it, or finds it at work
#   worker.sh state COMMAND...   worker HOST: running | exit CODE | gone
#   worker.sh stop COMMAND...    asks it to save and leave
#
# Exit code 3: another command is at work. In ~/xjax_run are its log, its exit
# code and, while it lives, a lock.
set -euo pipefail

verb=${1:-}
[ $# = 0 ] || shift
words=$*
mkdir -p ~/xjax_run
cd ~/xjax_run
exec 9>> lock

# free OPTIONS: locks it; false while the command is at work.
free() {
  ! flock "$@" 9 || return 0
  [ "$words" != "$(cat words)" ] || return 1
  echo "error: another command is at work here: $(cat words)" >&2
  exit 3
}

case $verb in
  start)
    free --wait=1 || exit 0 # who looks has it for a moment
    rm -f code pid asked
    echo "$words" > words
    export PATH=~/xjax/.venv/bin:$PATH
    # The lock is that of this shell, not of what the command leaves behind.
    # shellcheck disable=SC2016
    setsid bash -c '
      (cd ~/xjax && exec "$@" 9>&-) &
      echo $! > pid
      wait $! && code=0 || code=$?
      echo $code > code.new
      mv code.new code' bash "$@" >> log 2>&1 < /dev/null &
    ;;
  state)
    # In this order: the code is there before the lock is free.
    lives=
    free --shared --nonblock || lives=1
    if [ -e code ] && [ "$words" = "$(cat words)" ]; then
      echo "worker $(hostname): exit $(cat code)"
    elif [ -n "$lives" ]; then
      echo "worker $(hostname): running"
    else
      echo "worker $(hostname): gone" # with the machine, which started anew
    fi
    ;;
  stop)
    # Once: what is about to leave no longer listens.
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
