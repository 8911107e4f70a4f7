r"""Attacks the readers with damaged inputs, and counts what happens.

  PYTHONPATH=. python tests/faults/attack_inputs.py --inputs=5000 --commands=50

Each input is a sound file with a few random changes. A process of its own reads
the inputs one after another, with a limit on its memory. If it dies or hangs,
another process goes on with the next input. --commands is the number of inputs
that whole commands read. The table counts, by kind of input:

  read       the input was read; all of its documents were there
  refused    one clear error (a UserError)
  changed    a changed file of a run was read, and its results are others
  traceback  any other exception
  silent     the input was read, but documents are missing
  memory     reading needed more than 1 GiB
  hang       reading took more than 60 seconds
  died       the process was killed
"""

import argparse
import collections
from collections.abc import Iterator
import json
import os
import pathlib
import random
import resource
import select
import subprocess
import sys
import tempfile

from tests.faults.attacked_inputs import (
  DOCUMENTS,
  GOLD,
  SCORES,
  Changed,
  Kind,
  finished_runs,
  kinds,
  n_documents,
  n_rows,
)
from tests.fixtures.mutations import mutated

READ, REFUSED, CHANGED = 'read', 'refused', 'changed'
BAD = (CHANGED, 'traceback', 'silent', 'memory', 'hang', 'died')
_SECONDS = 60  # for one input
_GROWTH = 1 << 30  # bytes that one input may need
# Bytes of address space that a reading process may add. Libraries that are
# loaded late, such as those of JAX, need a part of it.
_SPACE = 6 << 30

ROOT = pathlib.Path(__file__).parents[2]


def attack(kind: Kind, rng: random.Random | None) -> tuple[str, str]:
  """Reads one input; returns the verdict and the message.

  Args:
    kind: the kind of input.
    rng: draws the file and its changes; None reads the sound files.
  """
  from xjax.core.errors import UserError

  files, victim = dict(kind.files), 'sound'
  if rng:
    victim = rng.choice(sorted(files))
    files[victim] = mutated(rng, files[victim])
  with tempfile.TemporaryDirectory() as name:
    for file, data in files.items():
      path = pathlib.Path(name, file)
      path.parent.mkdir(parents=True, exist_ok=True)
      path.write_bytes(data)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    n = None
    try:
      n = kind.read(pathlib.Path(name))
      verdict, message = READ, ''
    except UserError as error:
      verdict, message = REFUSED, str(error)
    except Changed:
      verdict, message = CHANGED, ''
    except Exception as error:
      verdict, message = 'traceback', f'{type(error).__name__}: {error}'
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
  if n is not None:
    expected = kind.n_documents(next(iter(files.values())))
    if n != expected:
      verdict, message = 'silent', f'{n} of {expected} documents'
  if grown << 10 > _GROWTH:
    verdict, message = 'memory', f'{grown >> 10} MiB; {message}'
  return verdict, f'{victim}: {message[:300]}'


def read_inputs(runs: pathlib.Path, first: int, last: int, seed: int) -> None:
  """Reads the inputs first to last - 1, and prints a JSON line for each."""
  every = kinds(runs)
  names = sorted(every)
  for name in names:  # after this, all libraries are loaded
    verdict, message = attack(every[name], None)
    if verdict != READ:
      raise RuntimeError(f'{name}: the sound input: {verdict}: {message}')
  space = int(pathlib.Path('/proc/self/statm').read_text().split()[0])
  limit = space * os.sysconf('SC_PAGE_SIZE') + _SPACE
  resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
  for number in range(first, last):
    name = names[number % len(names)]
    print(json.dumps([number, name]), flush=True)
    rng = random.Random(f'{seed}/{number}')
    verdict, message = attack(every[name], rng)
    print(json.dumps([number, name, verdict, message]), flush=True)


def attacks(
  n: int, seed: int, commands: int = 0
) -> Iterator[tuple[int, str, str, str]]:
  """Yields the number, kind, verdict and message of each input.

  Args:
    n: number of inputs that functions of the library read.
    seed: decides the inputs.
    commands: number of inputs that commands read.
  """
  with tempfile.TemporaryDirectory() as name:
    runs, number = pathlib.Path(name), 0
    finished_runs(runs)
    for i in range(commands):
      rng = random.Random(f'{seed}/command/{i}')
      yield i, *_attack_command(runs / 'tree', rng, evaluates=bool(i % 2))
    while number < n:
      command = [sys.executable, __file__, f'--runs={runs}', f'--seed={seed}']
      with subprocess.Popen(
        [*command, f'--first={number}', f'--inputs={n}'],
        stdout=subprocess.PIPE,
        env={**os.environ, 'PYTHONPATH': os.pathsep.join(sys.path)},
      ) as process:
        current, verdict = None, 'died'
        for line in _lines(process):
          if line is None:
            verdict = 'hang'
            process.kill()
            break
          current = json.loads(line)
          if len(current) == 4:
            yield tuple(current)
            number, current = current[0] + 1, None
        if current:
          yield current[0], current[1], verdict, ''
          number = current[0] + 1
        elif number < n:
          raise RuntimeError('the reading process does not start')


def _attack_command(
  run: pathlib.Path, rng: random.Random, evaluates: bool
) -> tuple[str, str, str]:
  """Lets a command read one input; returns its kind, verdict and message."""
  data = mutated(rng, SCORES if evaluates else DOCUMENTS)
  with tempfile.TemporaryDirectory() as name:
    gold, scores = pathlib.Path(name, 'gold'), pathlib.Path(name, 'scores')
    gold.write_bytes(GOLD)
    scores.write_bytes(data)
    arguments = [f'--workdir={run}', '--k=3']
    if evaluates:
      arguments = [f'--predictions={scores}', f'--gold={gold}', '--metrics=P']
    kind = 'evaluate' if evaluates else 'predict'
    try:
      done = subprocess.run(
        [sys.executable, '-m', 'xjax', kind, *arguments],
        input=data,
        capture_output=True,
        timeout=3 * _SECONDS,
        cwd=ROOT,
      )
    except subprocess.TimeoutExpired:
      return f'command {kind}', 'hang', ''
  said = done.stderr.decode(errors='replace')
  message = said[-300:]
  if 'Traceback' in said:
    return f'command {kind}', 'traceback', message
  if done.returncode:
    one = done.returncode == 1 and said.count('error: ') == 1
    return f'command {kind}', REFUSED if one else 'died', message
  n = n_rows(data) if evaluates else n_documents(data)
  whole = evaluates or done.stdout.count(b'\n') == n
  return f'command {kind}', READ if whole else 'silent', f'{n} documents'


def _lines(process: subprocess.Popen) -> Iterator[bytes | None]:
  """Yields the lines of a process; None if the next line takes too long."""
  seconds = 5 * _SECONDS  # the first line comes after all imports
  while True:
    ready, _, _ = select.select([process.stdout], [], [], seconds)
    line = process.stdout.readline() if ready else None
    if line == b'':
      return
    yield line
    seconds = _SECONDS


def table(results: list[tuple[int, str, str, str]]) -> str:
  """Returns the counts of verdicts by kind, and all that is bad."""
  verdicts = (READ, REFUSED, *BAD)
  counts = collections.Counter(
    (name, verdict) for _, kind, verdict, _ in results for name in (kind, 'all')
  )
  names = *sorted({kind for _, kind, _, _ in results}), 'all'
  lines = [' ' * 22 + ''.join(f'{verdict:>11}' for verdict in verdicts)]
  lines += [
    f'{name:22}' + ''.join(f'{counts[name, v]:11}' for v in verdicts)
    for name in names
  ]
  lines += [
    f'{number} {kind}: {verdict}: {message}'
    for number, kind, verdict, message in results
    if verdict in BAD
  ]
  return '\n'.join(lines)


def main() -> None:
  parser = argparse.ArgumentParser()
  parser.add_argument('--inputs', type=int, default=5000)
  parser.add_argument('--commands', type=int, default=50)
  parser.add_argument('--seed', type=int, default=0)
  parser.add_argument('--first', type=int, default=0)
  parser.add_argument('--runs', type=pathlib.Path)
  options = parser.parse_args()
  if options.runs:
    read_inputs(options.runs, options.first, options.inputs, options.seed)
  else:
    counts = options.inputs, options.seed, options.commands
    print(table(list(attacks(*counts))))


if __name__ == '__main__':
  main()
