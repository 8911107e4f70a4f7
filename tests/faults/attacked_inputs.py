"""Kinds of inputs that test_attacked_inputs.py damages, and their readers."""

from collections.abc import Callable
import csv
import dataclasses
import functools
import gzip
import io
import json
import pathlib
import tempfile
from unittest import mock
import zipfile

from absl import logging
import numpy as np
from safetensors.numpy import save

from tests.faults.damage import BERT, bert_tensors, matrix
from tests.fixtures.pipes import piped
from tests.fixtures.shrink import shrink
from tests.fixtures.sparse_runs import RUNS, config_of
from xjax.data.files.faults import Faults
from xjax.data.formats import eurlex57k
from xjax.data.formats.corpus_builder import CorpusBuilder
from xjax.data.formats.htc import HtcData
from xjax.data.formats.jsonl import JsonlData
from xjax.data.formats.own import OwnData
from xjax.data.formats.xc_features import XcFeaturesData
from xjax.data.formats.xc_text import XcRepoData
from xjax.data.labels import read_new_labels
from xjax.data.load import load_corpus, read_input
from xjax.data.schema import Label, LabelSpace
from xjax.data.text.word_vectors import read_word_vectors
from xjax.data.text.words import Vocabulary
from xjax.data.tokens_config import OnError
from xjax.judge.files.judge_files import JudgeFiles
from xjax.judge.request import JudgeRequest
from xjax.models.config_check import check_config
from xjax.models.contract import Config, load_config
from xjax.networks.pretrained.model_folder import ModelFolder
from xjax.report.sources import read_runs
from xjax.run.evaluate_split import evaluate_files
from xjax.run.fit import fit
from xjax.run.predict_file import predict_file
from xjax.sweep.config import Grid, Sweep
from xjax.sweep.session import SweepFolder
from xjax.sweep.trials import TrialStore

DOCUMENTS = b''.join(
  b'{"id": "d%d", "text": "one \\u00e9 %d", "labels": ["a", "b"]}\n' % (i, i)
  for i in range(8)
)
LABELS = b'{"id": "a", "name": "A"}\n{"id": "b", "alt": ["x"]}\n'
RAW = b''.join(
  b'{"uid": "u%d", "title": "t", "content": "c", "target_ind": [0, 2]}\n' % i
  for i in range(8)
)
RECORDS = b'id,text,labels\n' + b''.join(
  b'd%d,"one, \xc3\xa9\n%d",a;b\n' % (i, i) for i in range(12)
)
TAGGED = b''.join(
  b'{"id": "d%d", "text": "nipa buvu", "labels": ["c11", "c%d"]}\n' % (i, i)
  for i in range(4)
)
NAMES = b'one\ntwo\nthree\n'
HTC = b''.join(
  b'{"id": "d%d", "doc_token": ["x", "y"], "doc_label": ["a", "c"]}\n' % i
  for i in range(4)
)
TAXONOMY = b'Root\ta\tb\na\tc\td\nb\td\n'
CONCEPTS = (
  b'{"a": {"label": "A", "alt_labels": ["x"], "parents": ["b"]},\n'
  b'"b": {"label": "B", "parents": []}}\n'
)
ROWS = b'4 4 3\n0,2 0:1 3:0.5\n 1:2\n1 2:1.5\n0 0:1\n'
SCORES = b'4 3\n0:0.5 2:0.25\n1:1\n2:0.75 0:0.5\n1:0.125\n'
GOLD = b'4 3\n0:1\n1:1\n2:1 0:1\n1:1\n'
LISTS = b''.join(
  b'{"id": "d%d", "labels": [{"id": "a", "score": 0.5}]}\n' % i
  for i in range(4)
)
GOLD_LISTS = b''.join(b'{"id": "d%d", "labels": ["a"]}\n' % i for i in range(4))
SWEEP = Sweep(Grid({'train.learning_rate': (0.5, 0.25)}))
# With these warnings, a command goes on without a damaged file, and its results
# may differ.
_WARNED = 'config.json: is not the file', 'no tuned threshold: '
VECTORS = b'3 2\nthe 0.5 1\nof -1 2e-3\na 1 1\n'
BINARY = b'2 1\nthe \0\0\0\x3fof \0\0\x80\x3f'
SPACE = (
  b'{"id": "a", "name": "A", "alt": ["b"], "parents": [], "description": "",'
  b' "train_count": 3}\n{"id": "b", "train_count": 1}\n'
)


def n_documents(data: bytes) -> int:
  """Returns the number of documents in lines, plain or gzipped.

  Lines of one id and one text are one document, and so is an object of JSON
  that a line break divides.
  """
  lines = {line for line in _lines(data) if line.strip(b' \t\r')}
  return sum(not line.startswith((b',', b'"')) for line in lines)


def n_rows(data: bytes) -> int:
  """Returns the number of documents in an XC file, plain or gzipped.

  Blank lines are documents. The first line may be a header with their number.
  """
  lines = _lines(data)
  counts = lines[0].split()
  if 2 <= len(counts) <= 3 and all(count.isdigit() for count in counts):
    return int(counts[0])
  return len(lines) - (not lines[-1])


def n_records(data: bytes) -> int:
  """Returns the number of rows of a CSV file below its header."""
  text = io.StringIO(_plain(data).decode('utf-8-sig', 'replace'), newline='')
  return sum(any(map(str.strip, row)) for row in csv.reader(text)) - 1


def _lines(data: bytes) -> list[bytes]:
  return _plain(data).removeprefix(b'\xef\xbb\xbf').split(b'\n')


def _plain(data: bytes) -> bytes:
  return gzip.decompress(data) if data.startswith(b'\x1f\x8b') else data


class Changed(Exception):
  """Reports that a changed input was read as another sound input."""


@dataclasses.dataclass(frozen=True)
class Kind:
  files: dict[str, bytes]  # name -> sound content; one of them is changed
  # Reads the folder, and returns the number of documents that were read from
  # the first file, or None if the input has no documents.
  read: Callable[[pathlib.Path], int | None]
  n_documents: Callable[[bytes], int] = n_documents  # in the first file


def file_kinds() -> dict[str, Kind]:
  """Returns the kinds of inputs that are files of other programs."""
  return {**_corpora(), **_scores(), **_models()}


def _corpora() -> dict[str, Kind]:
  skipping = functools.partial(JsonlData, on_error=OnError.SKIP)
  space = LabelSpace((Label('a', 'A'),), np.ones(1, np.int32), 3, 1)

  def corpus(format_: type) -> Callable[[pathlib.Path], int]:
    return lambda path: len(
      load_corpus(format_(dir=str(path)), 0).split('train')
    )

  def records(path: pathlib.Path) -> int:
    splits = load_corpus(OwnData(dir=str(path / 'in.csv')), 0).splits
    return sum(map(len, splits.values()))

  return {
    'documents': Kind(
      {'in.jsonl': DOCUMENTS},
      lambda path: len(read_input(JsonlData(), str(path / 'in.jsonl'))),
    ),
    'documents from a pipe': Kind({'in.jsonl': DOCUMENTS}, _piped),
    'JSON lines': Kind(
      {'train.jsonl': DOCUMENTS, 'labels.jsonl': LABELS}, corpus(JsonlData)
    ),
    'JSON lines without the faulty ones': Kind(
      {'train.jsonl': DOCUMENTS, 'labels.jsonl': LABELS},
      lambda path: load_corpus(skipping(dir=str(path)), 0) and None,
    ),
    'CSV': Kind({'in.csv': RECORDS}, records, n_records),
    'raw text': Kind({'trn.json': RAW, 'Y.txt': NAMES}, corpus(XcRepoData)),
    'features': Kind(
      {'train.txt': ROWS, 'Y.txt': NAMES}, corpus(XcFeaturesData), n_rows
    ),
    'hierarchy': Kind(
      {'train.json': HTC, 'taxonomy': TAXONOMY}, corpus(HtcData)
    ),
    'laws': Kind({'f.zip': _archive(), 'eurovoc_en.json': CONCEPTS}, _laws),
    'new labels': Kind(
      {'new': NAMES}, lambda path: read_new_labels(path / 'new', space) and None
    ),
  }


def _archive() -> bytes:
  law = dict.fromkeys(('title', 'header', 'recitals', 'attachments'), 't')
  law |= {'celex_id': 'c', 'concepts': ['a'], 'main_body': ['m']}
  file = io.BytesIO()
  with zipfile.ZipFile(file, 'w', zipfile.ZIP_DEFLATED) as archive:
    # The time is fixed, so that every run has the same bytes.
    member = zipfile.ZipInfo('dataset/train/c.json', (2019, 1, 1, 0, 0, 0))
    archive.writestr(member, json.dumps(law), zipfile.ZIP_DEFLATED)
  return file.getvalue()


def _laws(path: pathlib.Path) -> None:
  """Reads an archive of EURLEX57K, without preparing it for random access."""
  faults = Faults()
  splits, concepts = eurlex57k._find_files(path / 'f.zip', faults)
  builder = CorpusBuilder(str(path), faults)
  builder.describe(eurlex57k.read_concepts, concepts)
  read = eurlex57k.Eurlex57kData().read_record
  for name, files in splits.items():
    builder.read(name, path, eurlex57k._records(files, faults), read)
  builder.corpus()


def _scores() -> dict[str, Kind]:
  def judged(path: pathlib.Path) -> int:
    names = {file.name: file for file in path.iterdir()}
    files = JudgeFiles(names.pop('predictions'), **names)
    return len(evaluate_files(files, JudgeRequest(kinds=('P',))).predictions)

  order = b'a\nb\nc\n'
  gold, lists = {'gold': GOLD}, {'gold': GOLD_LISTS}
  return {
    'scores': Kind({'predictions': SCORES, **gold}, judged, n_rows),
    'scores of lists': Kind({'predictions': LISTS, **lists}, judged),
    'scores by order': Kind(
      {'predictions': SCORES, **gold, 'labels': order}, judged, n_rows
    ),
    'matrix': Kind(
      {'predictions': matrix(), 'gold': b'3 4\n0:1\n1:1\n2:1\n'},
      lambda path: judged(path) and None,
    ),
  }


def _models() -> dict[str, Kind]:
  def vectors(path: pathlib.Path) -> None:
    read = read_word_vectors(path / 'v', Vocabulary(('of', 'the')))
    assert np.isfinite(read.vectors).all()

  def labels(path: pathlib.Path) -> None:
    space = LabelSpace.load(path / 'labels.jsonl', 3)
    assert len(space) == len(space.train_counts)

  return {
    'label space': Kind({'labels.jsonl': SPACE}, labels),
    'vectors': Kind({'v': VECTORS}, vectors),
    'binary vectors': Kind({'v': BINARY}, vectors),
    'model folder': Kind(
      {
        'config.json': json.dumps(BERT).encode(),
        'model.safetensors': save(bert_tensors()),
      },
      lambda path: ModelFolder.at(str(path)).parameters() and None,
    ),
  }


def parts_of_runs(runs: pathlib.Path) -> dict[str, Kind]:
  """Returns the files of runs and sweeps; finished_runs has filled `runs`."""

  def configured(path: pathlib.Path) -> None:
    check_config(load_config(path / 'config.json'))

  def unchanged(
    read: Callable[[pathlib.Path], object], path: pathlib.Path
  ) -> Callable[[pathlib.Path], None]:
    sound = read(path)

    def check(changed: pathlib.Path) -> None:
      with mock.patch.object(logging, 'warning') as warning:
        differs = read(changed) != sound
      warnings = ' '.join(map(str, warning.call_args_list))
      if differs and not any(text in warnings for text in _WARNED):
        raise Changed()

    return check

  def kind(folder: str, read: Callable[[pathlib.Path], object]) -> Kind:
    return Kind(_contents(runs / folder), unchanged(read, runs / folder))

  return {
    'config': Kind(
      {'config.json': (runs / 'tree' / 'config.json').read_bytes()}, configured
    ),
    'workdir': kind('tree', functools.partial(_tagged, runs)),
    'neural workdir': kind('neural', functools.partial(_tagged, runs)),
    'evaluation': kind('tree/eval/dev', _evaluation),
    'predictions of a run': kind(
      'predicted', functools.partial(_predicted, runs)
    ),
    'sweep': kind('sweep', _sweep),
  }


def _tagged(runs: pathlib.Path, workdir: pathlib.Path) -> dict[str, bytes]:
  """Lets a run predict, and returns the files that it writes."""
  with tempfile.TemporaryDirectory() as folder:
    predict_file(workdir, str(runs / 'in.jsonl'), f'{folder}/X.jsonl', 3)
    return _contents(pathlib.Path(folder))


def _evaluation(folder: pathlib.Path) -> object:
  """Returns the metrics and the lists of an evaluation."""
  (run,) = read_runs([str(folder)])
  lists = run.predictions.lists['all']
  return run.metrics, lists.ids.tolist(), lists.scores.tolist()


def _predicted(runs: pathlib.Path, folder: pathlib.Path) -> object:
  request = JudgeRequest(kinds=('P',))
  return [
    evaluate_files(JudgeFiles(folder / name, gold), request).metrics
    for name, gold in (('X.npz', None), ('X.jsonl', runs / 'in.jsonl'))
  ]


def _sweep(folder: pathlib.Path) -> object:
  """Returns the trials of a sweep, after checks as for another start."""
  SweepFolder.at(folder).open(SWEEP, Config(), 1)
  return TrialStore(folder / 'sweep.db', SWEEP.search, SWEEP.pruning).trials()


def _contents(folder: pathlib.Path) -> dict[str, bytes]:
  """Returns the files below a folder that commands read, by path."""
  files = {
    path.relative_to(folder).as_posix(): path.read_bytes()
    for path in sorted(folder.rglob('*'))
    if path.is_file()
  }
  return {
    name: data
    for name, data in files.items()
    if not name.startswith(('tb/', 'eval/test', 'run.json', 'README.md'))
  }


def _piped(path: pathlib.Path) -> int:
  """Reads documents from a pipe, which gets them in two parts."""
  data = (path / 'in.jsonl').read_bytes()
  with piped(path / 'pipe', data[:100], data[100:]) as pipe:
    return len(read_input(JsonlData(), str(pipe)))


def finished_runs(folder: pathlib.Path) -> None:
  """Fits a small tree and a neural model, predicts, and stores a sweep."""
  config = config_of(*RUNS['complete'])
  data = dataclasses.replace(
    config.data, n_train=60, n_dev=20, n_labels=20, hold_out_labels=0
  )
  fit(dataclasses.replace(config, data=data), folder / 'tree')
  fit(shrink(Config()), folder / 'neural')
  (folder / 'in.jsonl').write_bytes(TAGGED)
  (folder / 'sweep').mkdir()
  SweepFolder(folder / 'sweep').open(SWEEP, Config(), 1)
  store = TrialStore(folder / 'sweep' / 'sweep.db', SWEEP.search, SWEEP.pruning)
  store.complete(store.begin(), [0.5])
  store.begin()
  (folder / 'predicted').mkdir()
  for name, data in _tagged(folder, folder / 'tree').items():
    (folder / 'predicted' / name).write_bytes(data)
