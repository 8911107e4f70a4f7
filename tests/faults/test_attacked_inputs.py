"""Inputs that are changed at random: read whole, or one clear error.

Each input is a sound file with a few random changes. pytest stops the test if
an input hangs.
"""

from collections.abc import Iterator
import contextlib
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
  parts_of_runs,
)
from tests.faults.mutations import mutated
from tests.fixtures.networks import thorough
from xjax.core.errors import UserError

READ, REFUSED = 'read', 'refused'
GROWTH = 1 << 30  # bytes that one input may need
# Bytes of address space that all inputs together may add; JAX needs a part.
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


@contextlib.contextmanager
def limited_memory() -> Iterator[None]:
  """An input that needs much memory is a MemoryError."""
  space = int(pathlib.Path('/proc/self/statm').read_text().split()[0])
  before = resource.getrlimit(resource.RLIMIT_AS)
  limit = space * os.sysconf('SC_PAGE_SIZE') + SPACE
  resource.setrlimit(resource.RLIMIT_AS, (limit, before[1]))
  try:
    yield
  finally:
    resource.setrlimit(resource.RLIMIT_AS, before)


def verdicts(every: dict[str, Kind], seeds: int) -> list[str]:
  """Attacks all kinds of inputs, and checks that each is read or refused."""
  for name, kind in every.items():  # after this, all libraries are loaded
    assert attack(kind, None)[0] == READ, name
  with limited_memory():
    found = {
      (name, seed): attack(kind, random.Random(f'2/{seed}'))
      for name, kind in every.items()
      for seed in range(seeds)
    }
  wrong = {k: v for k, v in found.items() if v[0] not in (READ, REFUSED)}
  assert wrong == {}
  return [verdict for verdict, _ in found.values()]


@pytest.mark.parametrize('seeds', [25, thorough(150)])
def test_changed_files_are_read_or_one_clear_error(seeds):
  verdicts(file_kinds(), seeds)


@pytest.mark.thorough
def test_changed_runs_are_as_they_were_or_one_clear_error(tmp_path):
  finished_runs(tmp_path)
  found = verdicts(parts_of_runs(tmp_path), 20)
  assert found.count(READ) > 10 and found.count(REFUSED) > 40
