r"""Compares the model that `auto` chooses with the others that it may choose.

  python benchmarks/choices.py --data=DIR --workdir=runs/choices [--cases=arxiv]

DIR has a folder for each corpus of CASES, with train.jsonl.gz, dev.jsonl.gz and
labels.jsonl.gz in the form of docs/data.md, or the files of EURLEX57K; those
that it lacks are left out. In a case, so many training documents of a corpus
are drawn at random. Each case is trained with one linear classifier per label
(unless these are too many), with a label tree, and with a stack. A run that is
finished is not made again, and has no minutes. Each row of the table has
metrics of dev, of which at most 6,000 documents are drawn too. The last columns
say how far the choice of `auto` is from the best system in RP@5, and the stack
from the best other system in P@1.
"""

from collections.abc import Iterable, Iterator
import dataclasses
import gzip
import json
import pathlib
import time
from typing import Any, NamedTuple

from absl import app, flags
import numpy as np

from xjax.configs.own_documents import auto, own_linear
from xjax.core.atomic import atomic_write
from xjax.core.console import show_log
from xjax.core.rng import host_generator
from xjax.data.formats.synthetic import SyntheticData
from xjax.data.load import load_corpus
from xjax.data.schema import LabelSpace
from xjax.data.tokens_config import Analyzer, AutoTfidfConfig
from xjax.models.contract import DEV, Config
from xjax.models.stack.proposers import text_proposers
from xjax.models.stack.stack_model import StackModel, StackTrain
from xjax.models.trees.tree_model import LinearModel, LinearTrain
from xjax.run.auto import analyzer_of, choose, linear_parts
from xjax.run.fit import fit

_MOST_DEV = 6000
# Documents times labels of one-vs-all classifiers. Without a stack, `auto`
# chooses a tree above 20 million.
_MOST_CELLS = 25_000_000


class Case(NamedTuple):
  corpus: str  # a folder of --data
  n_train: int = 0  # 0: all documents

  @property
  def name(self) -> str:
    return f'{self.corpus}_{self.n_train or "all"}'


CASES = (
  Case('synthetic'),
  Case('arxiv', 500),
  Case('arxiv', 4000),
  Case('arxiv', 12_000),
  Case('arxiv'),
  Case('debtags', 500),
  Case('debtags', 3000),
  Case('debtags', 10_000),
  Case('debtags'),
  Case('debian_related', 3000),
  Case('debian_related', 8000),
  Case('debian_related'),
  Case('eurlex57k', 3000),
  Case('eurlex57k', 8000),
  Case('tib_sid_en', 5000),
  Case('yso_en', 10_000),
)
METRICS = {
  'P@1': ('all', 'P@1'),
  'RP@5': ('all', 'RP@5'),
  'nDCG@5': ('all', 'nDCG@5'),
  'few RP@5': ('few', 'RP@5'),
  'zero RP@5': ('zero', 'RP@5'),
}
COLUMNS = 'case', 'labels', 'system', *METRICS, 'minutes', 'choice', 'P@1 gap'
_DATA = flags.DEFINE_string('data', None, 'Folder of corpora.', required=True)
_WORKDIR = flags.DEFINE_string('workdir', None, 'For all runs.', required=True)
_CASES = flags.DEFINE_list(
  'cases', [], 'Only cases whose names contain one of these texts.'
)


def main(argv: list[str]) -> None:
  """Trains all systems of all cases, and prints a row for each."""
  del argv
  show_log()
  print(f'| {" | ".join(COLUMNS)} |\n{"| --- " * len(COLUMNS)}|', flush=True)
  for case in CASES:
    wanted = not _CASES.value or any(x in case.name for x in _CASES.value)
    source = pathlib.Path(_DATA.value, case.corpus)
    if wanted and (source.exists() or case.corpus == 'synthetic'):
      for row in rows_of(case, source, pathlib.Path(_WORKDIR.value)):
        print(f'| {" | ".join(row)} |', flush=True)


def rows_of(
  case: Case, source: pathlib.Path, workdir: pathlib.Path
) -> Iterator[list[str]]:
  """Yields a row of the table for each system."""
  config = auto()
  if case.corpus == 'synthetic':
    config.data = SyntheticData(tokens=AutoTfidfConfig())
  else:
    folder = workdir / 'data' / case.name
    if not (folder / 'dev.jsonl').exists():  # written last
      draw(source, folder, case)
    config.data.dir = str(folder)
  corpus = load_corpus(config.data, config.seed)
  space, analyzer = corpus.label_space, analyzer_of(corpus)
  chosen = choose(config, space, analyzer).config.model
  metrics_of, rows = {}, []
  for name, own in systems(config, space, analyzer):
    run, start = workdir / case.name / name, time.perf_counter()
    is_new = not (run / 'eval').exists()
    slices = fit(own, run).metrics[DEV]['xjax']
    minutes = f'{(time.perf_counter() - start) / 60:.1f}' if is_new else '-'
    own_metrics = metrics_of[name] = {
      column: slices.get(slice_, {}).get(metric)
      for column, (slice_, metric) in METRICS.items()
    }
    shown = ['-' if x is None else f'{x:.4f}' for x in own_metrics.values()]
    rows.append([case.name, f'{space.n_trained:,}', name, *shown, minutes])
    is_chosen = type(own.model) is type(chosen)
    choice = own_metrics['RP@5'] if is_chosen else None
    rows[-1] += [choice, own_metrics['P@1'] if name == 'stack' else None]
  best = max(x['RP@5'] for x in metrics_of.values())
  best_other = max(y['P@1'] for x, y in metrics_of.items() if x != 'stack')
  for *cells, choice, stack in rows:
    gaps = zip((choice, stack), (best, best_other))
    yield cells + ['' if x is None else f'{x - y:+.4f}' for x, y in gaps]


def systems(
  config: Config, space: LabelSpace, analyzer: Analyzer
) -> Iterator[tuple[str, Config]]:
  """Yields the systems that `auto` chooses from."""
  sizes = space.n_train, space.n_trained
  _, _, tokens = linear_parts(*sizes, config.data.tokens, analyzer)
  data = dataclasses.replace(config.data, tokens=tokens)
  config = dataclasses.replace(config, data=data)
  tree = own_linear()
  parts = {
    'linear': (LinearModel(), LinearTrain()),
    'tree': (tree.model, tree.train),
    'stack': (StackModel(text_proposers(tokens)), StackTrain()),
  }
  if sizes[0] * sizes[1] > _MOST_CELLS:
    del parts['linear']
  for name, (model, train) in parts.items():
    yield name, dataclasses.replace(config, model=model, train=train)


def draw(source: pathlib.Path, folder: pathlib.Path, case: Case) -> None:
  """Writes a part of a corpus in the form of one's own documents."""
  rng = host_generator(case.n_train, 'choices', case.corpus)
  folder.mkdir(parents=True, exist_ok=True)
  write(folder / 'labels.jsonl', labels_of(source))
  for split, most in ('train', case.n_train), (DEV, _MOST_DEV):
    documents = list(read(source / f'{split}.jsonl.gz'))
    if most and len(documents) > most:
      rows = np.sort(rng.choice(len(documents), most, replace=False))
      documents = [documents[row] for row in rows]
    write(folder / f'{split}.jsonl', map(plain, documents))


def read(path: pathlib.Path) -> Iterator[dict[str, Any]]:
  """Yields the rows of a compressed file of JSON lines."""
  with gzip.open(path, 'rt', encoding='utf-8') as file:
    yield from map(json.loads, file)


def write(path: pathlib.Path, rows: Iterable[dict[str, Any]]) -> None:
  """Writes a file of JSON lines."""
  with atomic_write(path) as file:
    for row in rows:
      file.write(json.dumps(row, ensure_ascii=False) + '\n')


def plain(document: dict[str, Any]) -> dict[str, Any]:
  """Returns a document with an id, zones or a text, and labels."""
  if 'celex_id' not in document:
    return document
  zones = {x: document[x] for x in ('title', 'header', 'recitals')}
  zones['main_body'] = '\n'.join(document['main_body'])
  labels = document['concepts']
  return {'id': document['celex_id'], 'zones': zones, 'labels': labels}


def labels_of(source: pathlib.Path) -> Iterator[dict[str, Any]]:
  """Yields the labels of a corpus with their names."""
  names = source / 'eurovoc_en.json'
  if not names.exists():
    yield from read(source / 'labels.jsonl.gz')
    return
  known = {*(source / 'label_universe.txt').read_text().split()}
  for id_, label in json.loads(names.read_text(encoding='utf-8')).items():
    if id_ in known:
      parents = [parent for parent in label['parents'] if parent in known]
      yield {'id': id_, 'name': label['label'], 'parents': parents}


if __name__ == '__main__':
  app.run(main)
