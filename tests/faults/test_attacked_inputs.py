"""Inputs that are changed at random: read whole, or one clear error.

Each input is a sound file with a few random changes. A process of its own reads
the inputs one after another, with a limit on its memory. If it dies or hangs,
another process goes on with the next input.
"""

from collections.abc import Iterator
from multiprocessing import connection, get_context
import os
import pathlib
import random
import resource
import tempfile

import pytest

from tests.faults.attacked_inputs import (
  Changed,
  Kind,
  file_kinds,
  finished_runs,
  kinds,
)
from tests.fixtures.mutations import mutated
from xjax.core.errors import UserError

READ, REFUSED = 'read', 'refused'
SECONDS = 60  # for one input
GROWTH = 1 << 30  # bytes that one input may need
# Bytes of address space that a reading process may add. Libraries that are
# loaded late, such as those of JAX, need a part of it.
SPACE = 6 << 30


def attack(kind: Kind, rng: random.Random | None) -> tuple[str, str]:
  """Returns the verdict on one input; without rng, on the sound files."""
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
      verdict, message = 'changed', 'its results are others'
    except Exception as error:
      verdict, message = 'traceback', f'{type(error).__name__}: {error}'
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
  if n is not None:
    expected = kind.n_documents(next(iter(files.values())))
    if n != expected:
      verdict, message = 'silent', f'{n} of {expected} documents'
  if grown << 10 > GROWTH:
    verdict, message = 'memory', f'{grown >> 10} MiB; {message}'
  return verdict, f'{victim}: {message[:300]}'


def read_inputs(
  pipe: connection.Connection, runs: pathlib.Path, first: int, last: int
) -> None:
  """Reads the inputs first to last - 1, and sends (number, kind, verdict)."""
  every = kinds(runs)
  names = sorted(every)
  for name in names:  # after this, all libraries are loaded
    assert attack(every[name], None)[0] == READ, name
  space = int(pathlib.Path('/proc/self/statm').read_text().split()[0])
  limit = space * os.sysconf('SC_PAGE_SIZE') + SPACE
  resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
  for number in range(first, last):
    name = names[number % len(names)]
    pipe.send((number, name))
    rng = random.Random(f'1/{number}')
    pipe.send((number, name, *attack(every[name], rng)))


def received(pipe: connection.Connection, seconds: int) -> tuple | str:
  """Returns what a process sends next, or why it sends nothing."""
  try:
    return pipe.recv() if pipe.poll(seconds) else 'hang'
  except EOFError:
    return 'died'


def attacks(runs: pathlib.Path, n: int) -> Iterator[tuple[int, str, str, str]]:
  """Yields the number, kind, verdict and message of each input."""
  context, number = get_context('spawn'), 0
  while number < n:
    ours, theirs = context.Pipe()
    words = theirs, runs, number, n
    process = context.Process(target=read_inputs, args=words)
    process.start()
    theirs.close()
    begun, seconds = None, 5 * SECONDS  # all imports come before the first
    while number < n:
      answer = received(ours, seconds)
      seconds = SECONDS
      if isinstance(answer, str):
        break
      if len(answer) == 2:
        begun = answer
      else:
        yield answer
        number, begun = answer[0] + 1, None
    process.kill()
    process.join()
    assert begun or number == n, 'the reading process does not start'
    if begun:
      yield *begun, answer, ''
      number = begun[0] + 1


def test_changed_files_are_read_or_one_clear_error():
  verdicts = {}
  for name, kind in file_kinds().items():
    assert attack(kind, None)[0] == READ, name
    for seed in range(25):
      verdicts[name, seed] = attack(kind, random.Random(f'2/{seed}'))
  wrong = {k: v for k, v in verdicts.items() if v[0] not in (READ, REFUSED)}
  assert wrong == {}


@pytest.mark.thorough
def test_no_changed_input_is_a_traceback_or_silently_cut(tmp_path):
  finished_runs(tmp_path)
  results = list(attacks(tmp_path, 390))
  assert [x for x in results if x[2] not in (READ, REFUSED)] == []
  verdicts = [verdict for _, _, verdict, _ in results]
  assert verdicts.count(READ) > 20 and verdicts.count(REFUSED) > 100
