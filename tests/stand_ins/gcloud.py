"""Replaces gcloud in tests: one TPU VM whose workers are local folders.

Several slices are a VM too, whose workers are those of all slices.

The folder $STAND_IN contains:
  calls: the commands so far, one per line.
  states: the answers of `describe`, one per line. Each answer is given once,
    but the last is repeated.
  plans: the states of each TPU VM that will be created, as lines of JSON.
  worker0, worker1, ...: the home folders of the workers.
"""

import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys

FOLDER = pathlib.Path(os.environ['STAND_IN'])
COUNT = int(os.environ.get('WORKERS', 2))
WORKERS = [FOLDER / f'worker{number}' for number in range(COUNT)]
STATES = FOLDER / 'states'
UV = """
[ "$1" != venv ] || { mkdir -p xjax/.venv/bin; cd xjax/.venv/bin
  printf '#!/bin/sh\\nexec %s -S -E "$@"\\n' '$PYTHON' > python
  chmod +x python; }
"""


def take_line(path):
  """Returns the first line, and removes it unless it is the only one."""
  lines = path.read_text().splitlines() if path.exists() else []
  if len(lines) > 1:
    path.write_text('\n'.join(lines[1:]))
  return lines[0] if lines else None


def take_away():
  """Takes the machine away at once: its programs have no time to save."""
  for home in WORKERS:
    file = home / 'xjax_run' / 'pid'
    try:
      os.killpg(os.getpgid(int(file.read_text())), signal.SIGKILL)
    except (FileNotFoundError, ProcessLookupError):
      pass
    shutil.rmtree(home, ignore_errors=True)


def describe(arguments):
  state = take_line(STATES)
  if state is None:
    print('ERROR: (gcloud) NOT_FOUND: no such thing', file=sys.stderr)
    return 1
  if state in ('SUSPENDED', 'GONE'):
    take_away()
  if state == 'GONE':
    STATES.unlink()
    return describe(arguments)
  print(state)
  return 0


def program(path, text):
  path.write_text('#!/bin/sh\n' + text.replace('$PYTHON', sys.executable))
  path.chmod(0o755)


def create(arguments):
  del arguments
  if STATES.exists():
    print('ERROR: (gcloud) ALREADY_EXISTS', file=sys.stderr)
    return 1
  plan = take_line(FOLDER / 'plans')
  STATES.write_text('\n'.join(json.loads(plan) if plan else ['ACTIVE']))
  for home in WORKERS:
    (home / '.local' / 'bin').mkdir(parents=True)
    program(home / '.local' / 'bin' / 'uv', UV)
    program(home / '.local' / 'bin' / 'python3', 'exit 0 # pip')
  return 0


def delete(arguments):
  del arguments
  STATES.write_text('DELETING\nDELETING\nGONE')
  take_away()
  return 0


def chosen(arguments):
  (worker,) = [a[9:] for a in arguments if a.startswith('--worker=')]
  return WORKERS if worker == 'all' else [WORKERS[int(worker)]]


def scp(arguments):
  for home in chosen(arguments):
    shutil.copy(arguments[0], home)
  return 0


def ssh(arguments):
  (command,) = [a[10:] for a in arguments if a.startswith('--command=')]
  codes = []
  for home in chosen(arguments):
    if not home.exists():
      return 255
    path = f'{home}/.local/bin:{os.environ["PATH"]}'
    environment = {**os.environ, 'HOME': str(home), 'PATH': path}
    done = subprocess.run(
      ['bash', '-c', command],
      cwd=home,
      env=environment,
      stdin=subprocess.DEVNULL,
    )
    codes.append(done.returncode)
  return next(filter(None, codes), 0)


def main():
  words = sys.argv[2:]
  with (FOLDER / 'calls').open('a') as file:
    file.write(' '.join(['gcloud', *words]) + '\n')
  assert words[:2] == ['compute', 'tpus']
  kind, verb, *arguments = words[2:]
  allowed = {
    'queued-resources': (describe, create, delete, ssh, scp),
    'tpu-vm': (ssh, scp),
  }
  verbs = {function.__name__: function for function in allowed[kind]}
  return verbs[verb](arguments)


if __name__ == '__main__':
  sys.exit(main())
