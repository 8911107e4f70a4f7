"""The commands of the pages, expanded by bash but not run.

Every program that the blocks start is replaced by one that notes its arguments,
so loops and variables are expanded as a reader's shell would do it.
"""

import dataclasses
import os
import pathlib
import re
import subprocess

from tests.docs.pages import ROOT, Block

# Programs that the blocks start by their names.
PROGRAMS = (
  *('python', 'python3', 'pip', 'xjax', 'curl'),
  *('sbatch', 'kubectl', 'docker', 'ruff'),
)
_NOTE = """#!/bin/sh
printf "%s\\n" "${0##*/}" "$@" >> "$CALLS"
echo "$END" >> "$CALLS"
"""
_END = '--- end of a call ---'


@dataclasses.dataclass(frozen=True)
class Call:
  """A program of xjax with its arguments.

  Attributes:
    block: where it stands.
    main: NAME of `xjax NAME`, or of `benchmarks/NAME.py`.
    arguments: what follows it.
    benchmark: whether it is one.
  """

  block: Block
  main: str
  arguments: tuple[str, ...]
  benchmark: bool = False

  @property
  def place(self) -> str:
    return f'{self.block.page}:{self.block.line}'

  def flags(self) -> list[tuple[str, str | None]]:
    """Returns the names of the flags, and their values if they have some."""
    matches = (re.fullmatch(r'--([\w.]+)(?:=(.*))?', a) for a in self.arguments)
    return [(match[1], match[2]) for match in matches if match]


def calls_of(block: Block, folder: pathlib.Path) -> list[Call]:
  """Returns the calls of xjax's programs that a block would make.

  Args:
    block: in sh.
    folder: an empty one, in which bash runs.
  """
  programs = [folder / 'bin' / name for name in PROGRAMS]
  programs += [folder / '.venv' / 'bin' / name for name in ('python', 'pip')]
  scripts = (ROOT / 'tpu_scripts').glob('*.sh')
  programs += [folder / 'tpu_scripts' / path.name for path in scripts]
  for path in programs:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(_NOTE)
    path.chmod(0o755)
  calls = folder / 'calls'
  calls.touch()
  (folder / 'my_data').mkdir()
  (folder / 'my_data' / 'train.jsonl').touch()
  done = subprocess.run(
    ['bash', '-e', '-c', block.text],
    cwd=folder,
    env={
      'PATH': f'{folder}/bin:{os.environ["PATH"]}',
      'CALLS': str(calls),
      'END': _END,
    },
    capture_output=True,
    text=True,
    timeout=60,
  )
  assert done.returncode == 0, f'{block.page}:{block.line}: {done.stderr}'
  texts = calls.read_text().split(f'{_END}\n')
  return [call for text in texts for call in _call_of(block, text.splitlines())]


def _call_of(block: Block, words: list[str]) -> list[Call]:
  for place, word in enumerate(words):
    rest = tuple(words[place + 1 :])
    if word.startswith('experiments.') and words[place - 1] == '-m':
      return [Call(block, word.removeprefix('experiments.'), rest)]
    if word == 'xjax' and rest:
      return [Call(block, rest[0], rest[1:])]
    if match := re.fullmatch(r'benchmarks/(\w+)\.py', word):
      return [Call(block, match[1], rest, benchmark=True)]
  return []
