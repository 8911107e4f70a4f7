r"""Attacks the readers with damaged inputs, and counts what happens.

  PYTHONPATH=. python tests/faults/attack_inputs.py --inputs=5000 --commands=50

Each input is a sound file with a few random changes. A process of its own reads
the inputs one after another, with a limit on its memory. If it dies or hangs,
another process goes on with the next input. --commands is the number of inputs
that whole commands read. The table counts, by kind of input:

  read       the input was read; all of its documents were there
  refused    one clear error (a UserError)
  changed    a changed workdir was read, and its predictions are others
  traceback  any other exception
  silent     the input was read, but documents are missing
  memory     reading needed more than 1 GiB
  hang       reading took more than 60 seconds
  died       the process was killed
"""

import argparse
import collections
from collections.abc import Callable, Iterator
import dataclasses
import gzip
import io
import json
import os
import pathlib
import random
import resource
import select
import subprocess
import sys
import tempfile

import numpy as np
from safetensors.numpy import save
from scipy import sparse

from tests.fixtures.mutations import mutated

READ, REFUSED, CHANGED = 'read', 'refused', 'changed'
BAD = (CHANGED, 'traceback', 'silent', 'memory', 'hang', 'died')
_SECONDS = 60  # for one input
_GROWTH = 1 << 30  # bytes that one input may need
# Bytes of address space that a reading process may add. Libraries that are
# loaded late, such as those of JAX, need a part of it.
_SPACE = 6 << 30

ROOT = pathlib.Path(__file__).parents[2]

DOCUMENTS = b''.join(
  b'{"id": "d%d", "text": "one \\u00e9 %d", "labels": ["a", "b"]}\n' % (i, i)
  for i in range(8)
)
LABELS = b'{"id": "a", "name": "A"}\n{"id": "b", "alt": ["x"]}\n'
RAW = b''.join(
  b'{"uid": "u%d", "title": "t", "content": "c", "target_ind": [0, 2]}\n' % i
  for i in range(8)
)
NAMES = b'one\ntwo\nthree\n'
ROWS = b'4 4 3\n0,2 0:1 3:0.5\n 1:2\n1 2:1.5\n0 0:1\n'
SCORES = b'4 3\n0:0.5 2:0.25\n1:1\n2:0.75 0:0.5\n1:0.125\n'
GOLD = b'4 3\n0:1\n1:1\n2:1 0:1\n1:1\n'
LISTS = b''.join(
  b'{"id": "d%d", "labels": [{"id": "a", "score": 0.5}]}\n' % i
  for i in range(4)
)
GOLD_LISTS = b''.join(b'{"id": "d%d", "labels": ["a"]}\n' % i for i in range(4))
VECTORS = b'3 2\nthe 0.5 1\nof -1 2e-3\na 1 1\n'
BERT = {
  'model_type': 'bert',
  'vocab_size': 11,
  'hidden_size': 4,
  'num_hidden_layers': 1,
  'num_attention_heads': 2,
  'intermediate_size': 6,
  'max_position_embeddings': 5,
}


def n_documents(data: bytes, header: bool = False) -> int:
  """Returns the number of documents in lines, as their definition has it.

  Args:
    data: the lines, plain or gzipped.
    header: whether the lines are rows of an XC file. Then blank lines are
      documents, and the first line may be a header with their number.
  """
  if data.startswith(b'\x1f\x8b'):
    data = gzip.decompress(data)
  lines = data.removeprefix(b'\xef\xbb\xbf').split(b'\n')
  if not header:
    return sum(bool(line.strip(b' \t\r')) for line in lines)
  counts = lines[0].split()
  if 2 <= len(counts) <= 3 and all(count.isdigit() for count in counts):
    return int(counts[0])
  return len(lines) - (not lines[-1])


class Changed(Exception):
  """Reports that a changed input was read as another sound input."""


@dataclasses.dataclass(frozen=True)
class Kind:
  """Holds a kind of input.

  Attributes:
    files: file name -> sound content. One of the files is changed.
    read: reads the folder. It returns the number of documents that were read
      from the first file, or None if the input has no documents.
    header: whether the first file has rows of an XC file.
  """

  files: dict[str, bytes]
  read: Callable[[pathlib.Path], int | None]
  header: bool = False


def npz(**arrays: np.ndarray) -> bytes:
  file = io.BytesIO()
  np.savez(file, **arrays)
  return file.getvalue()


def matrix() -> bytes:
  file = io.BytesIO()
  scores = sparse.csr_array(np.array([[0.5, 0, 0.25], [0, 1, 0], [0, 0, 1]]))
  sparse.save_npz(file, scores, compressed=False)
  return file.getvalue()


def kinds(run: pathlib.Path) -> dict[str, Kind]:
  """Returns all kinds of inputs, by name.

  Args:
    run: the workdir of a finished run, whose files are changed too.
  """
  from xjax.config.check import check_config
  from xjax.config.json import load_config
  from xjax.data.formats.jsonl import JsonlData
  from xjax.data.formats.xc_features import XcFeaturesData
  from xjax.data.formats.xc_text import XcRepoData
  from xjax.data.load import load_corpus, read_input
  from xjax.data.text.word_vectors import read_word_vectors
  from xjax.data.text.words import Vocabulary
  from xjax.judge.files.judged import JudgeFiles
  from xjax.judge.request import JudgeRequest
  from xjax.run.evaluate import evaluate_files
  from xjax.run.load import load
  from xjax.score.pretrained.architecture import architecture_of
  from xjax.score.pretrained.convert import parameter_shapes, to_hugging_face
  from xjax.score.pretrained.model_folder import ModelFolder

  def corpus(format_: type) -> Callable[[pathlib.Path], int]:
    return lambda path: len(
      load_corpus(format_(dir=str(path)), 0).split('train')
    )

  def judged(path: pathlib.Path) -> int:
    names = {file.name: file for file in path.iterdir()}
    files = JudgeFiles(names.pop('predictions'), **names)
    return len(evaluate_files(files, JudgeRequest(kinds=('P',))).predictions)

  sound = load(run).predict(['nipa buvu'], 3)

  def tagged(path: pathlib.Path) -> None:
    if load(path).predict(['nipa buvu'], 3) != sound:
      raise Changed()

  def configured(path: pathlib.Path) -> None:
    check_config(load_config(path / 'config.json'))

  vocab = Vocabulary(('of', 'the'))
  rng = np.random.default_rng(0)
  bert = architecture_of(BERT, 'config.json')
  weights = {
    name: rng.normal(size=shape).astype(np.float32)
    for name, shape in parameter_shapes(bert).items()
  }
  order = b'a\nb\nc\n'
  gold, lists = {'gold': GOLD}, {'gold': GOLD_LISTS}
  files = {str(f.relative_to(run)): f.read_bytes() for f in _files(run)}
  return {
    'documents': Kind(
      {'in.jsonl': DOCUMENTS},
      lambda path: len(read_input(JsonlData(), str(path / 'in.jsonl'))),
    ),
    'documents from a pipe': Kind({'in.jsonl': DOCUMENTS}, _piped),
    'JSON lines': Kind(
      {'train.jsonl': DOCUMENTS, 'labels.jsonl': LABELS}, corpus(JsonlData)
    ),
    'raw text': Kind({'trn.json': RAW, 'Y.txt': NAMES}, corpus(XcRepoData)),
    'features': Kind(
      {'train.txt': ROWS, 'Y.txt': NAMES}, corpus(XcFeaturesData), True
    ),
    'scores': Kind({'predictions': SCORES, **gold}, judged, True),
    'scores of lists': Kind({'predictions': LISTS, **lists}, judged),
    'scores by order': Kind(
      {'predictions': SCORES, **gold, 'labels': order}, judged, True
    ),
    'matrix': Kind(
      {'predictions': matrix(), 'gold': b'3 3\n0:1\n1:1\n2:1\n'},
      lambda path: judged(path) and None,
    ),
    'vectors': Kind(
      {'v': VECTORS}, lambda path: read_word_vectors(path / 'v', vocab) and None
    ),
    'config': Kind({'config.json': files['config.json']}, configured),
    'workdir': Kind(files, tagged),
    'model folder': Kind(
      {
        'config.json': json.dumps(BERT).encode(),
        'model.safetensors': save(to_hugging_face(weights, bert, 'ours')),
      },
      lambda path: ModelFolder.at(str(path)).parameters() and None,
    ),
  }


def _files(folder: pathlib.Path) -> list[pathlib.Path]:
  return sorted(path for path in folder.rglob('*') if path.is_file())


def _piped(path: pathlib.Path) -> int:
  """Reads documents from a pipe, which gets them in two parts."""
  from tests.fixtures.pipes import piped
  from xjax.data.formats.jsonl import JsonlData
  from xjax.data.load import read_input

  data = (path / 'in.jsonl').read_bytes()
  with piped(path / 'pipe', data[:100], data[100:]) as pipe:
    return len(read_input(JsonlData(), str(pipe)))


def finished_run(folder: pathlib.Path) -> pathlib.Path:
  """Fits a small tree without judging it, and returns the workdir."""
  from tests.fixtures.sparse_runs import RUNS, config_of
  from xjax.run.fit import fit

  config = config_of(*RUNS['complete'])
  data = dataclasses.replace(
    config.data, n_train=60, n_dev=0, n_labels=20, hold_out_labels=0
  )
  return fit(dataclasses.replace(config, data=data), folder / 'run').workdir


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
    expected = n_documents(next(iter(files.values())), kind.header)
    if n != expected:
      verdict, message = 'silent', f'{n} of {expected} documents'
  if grown << 10 > _GROWTH:
    verdict, message = 'memory', f'{grown >> 10} MiB; {message}'
  return verdict, f'{victim}: {message[:300]}'


def read_inputs(run: pathlib.Path, first: int, last: int, seed: int) -> None:
  """Reads the inputs first to last - 1, and prints a JSON line for each."""
  every = kinds(run)
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
    run, number = finished_run(pathlib.Path(name)), 0
    for i in range(commands):
      rng = random.Random(f'{seed}/command/{i}')
      yield i, *_attack_command(run, rng, evaluates=bool(i % 2))
    while number < n:
      command = [sys.executable, __file__, f'--run={run}', f'--seed={seed}']
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
  n = n_documents(data, evaluates)
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
  parser.add_argument('--run', type=pathlib.Path)
  options = parser.parse_args()
  if options.run:
    read_inputs(options.run, options.first, options.inputs, options.seed)
  else:
    counts = options.inputs, options.seed, options.commands
    print(table(list(attacks(*counts))))


if __name__ == '__main__':
  main()
