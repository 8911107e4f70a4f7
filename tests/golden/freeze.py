r"""Freezes what every shipped config computes, to compare it after a change.

  python -m tests.golden.freeze --output=FOLDER [--only=REGEX] [--jobs=2]

Each config and variant is trained in a small form, for a few steps on the
synthetic corpus. Of each run, one file in FOLDER has the first lists of dev,
the digests of all lists, and all metrics.

Configs that FOLDER has already are left out, unless they failed. The command
`tests.golden.compare` compares two such folders.
"""

import argparse
import concurrent.futures
import importlib.metadata
import multiprocessing
import os
import pathlib
import re
import sys
import tempfile
import threading

from tests.golden.record import Frozen

ROOT = pathlib.Path(__file__).resolve().parents[2]
SMALL_FOLDER = 'XJAX_GOLDEN_FOLDER'  # a variable with the folder of workdirs


def main() -> None:
  """Freezes the configs that the flags name."""
  flags = parse()
  flags.output.mkdir(parents=True, exist_ok=True)
  with tempfile.TemporaryDirectory(prefix='xjax_golden_') as scratch:
    set_environment(pathlib.Path(scratch), flags.programs)
    failed = freeze_all(flags)
  sys.exit(1 if failed else 0)


def parse() -> argparse.Namespace:
  parser = argparse.ArgumentParser(
    description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
  )
  parser.add_argument('--output', type=pathlib.Path, required=True)
  parser.add_argument('--only', default='', help='part of the names, a REGEX')
  parser.add_argument('--jobs', type=int, default=2, help='processes')
  parser.add_argument('--programs', help='folder that keeps compiled programs')
  return parser.parse_args()


def set_environment(scratch: pathlib.Path, programs: str | None) -> None:
  """Sets what JAX and xjax read when a process starts.

  Runs are compiled as by the tests: without LLVM's optimizer, since most of
  their time is compiling.
  """
  xla = ['--xla_backend_optimization_level=0']
  if importlib.metadata.version('jax').startswith('0.10.'):
    xla.append('--xla_cpu_use_fusion_emitters=false')
  compiled = programs or str(scratch / 'programs')
  os.environ.update(
    JAX_PLATFORMS='cpu',
    JAX_NUM_CPU_DEVICES='1',
    JAX_COMPILATION_CACHE_DIR=compiled,
    JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS='0',
    XJAX_CACHE_DIR=str(scratch / 'data'),
    XLA_FLAGS=' '.join(xla),
  )
  os.environ[SMALL_FOLDER] = str(scratch)


def freeze_all(flags: argparse.Namespace) -> int:
  """Freezes the small forms in processes; returns how many failed."""
  start = multiprocessing.get_context('spawn')
  processes = flags.jobs, start, end_with_parent
  with concurrent.futures.ProcessPoolExecutor(*processes) as pool:
    names = pool.submit(all_names).result()
    todo = [
      name
      for name in names
      if re.search(flags.only, name) and not is_done(flags.output, name)
    ]
    calls = {pool.submit(freeze_small, n, flags.output): n for n in todo}
    failed = 0
    for call in concurrent.futures.as_completed(calls):
      failed += bool(call.result())
      print(calls[call], call.result() or 'frozen', flush=True)
    return failed


def end_with_parent() -> None:
  """Ends this process when its parent ends, also if it was killed."""

  def wait() -> None:
    multiprocessing.parent_process().join()
    os._exit(1)

  threading.Thread(target=wait, daemon=True).start()


def all_names() -> list[str]:
  from tests.golden.shipped_configs import names  # imports JAX

  return names()


def file_of(output: pathlib.Path, name: str) -> pathlib.Path:
  return output / f'{name.replace(":", ".")}.npz'


def is_done(output: pathlib.Path, name: str) -> bool:
  path = file_of(output, name)
  return path.exists() and not Frozen.load(path).failure


def freeze_small(name: str, output: pathlib.Path) -> str:
  """Trains a config and writes what it computed; returns why it failed."""
  from tests.golden.shipped_configs import train

  with tempfile.TemporaryDirectory(dir=os.environ[SMALL_FOLDER]) as folder:
    workdir = pathlib.Path(folder) / 'run'
    try:
      train(name, workdir)
      frozen = Frozen.of_workdir(workdir)
    except Exception as error:  # every config has its turn
      reason = f'{type(error).__name__}: {error}'
      frozen = Frozen(failure=reason.replace(folder, 'FOLDER')[:1000])
    frozen.save(file_of(output, name))
  return frozen.failure


if __name__ == '__main__':
  main()
