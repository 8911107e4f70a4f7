r"""Measures what each part of a finished stack is worth.

  python benchmarks/stack_ablation.py --workdir=DIR [--split=dev]

DIR is a finished run of a stack that learned from folds. No proposer is trained
again: each proposer lists the labels of the split once, and rankers learn from
the lists in DIR/model. No file in DIR is changed. Each row of the first table
has a ranker of its own:

- `without tree`: without a proposer, its features and its vote in `agreement`.
  The flag --without=names,title_names adds a row without both. If no proposer
  is left that reads names, the lists still lack the labels that are hidden in
  the folds. A stack that never had such proposers can then be much better.
  The scores of the classifiers of listed labels still come from the lists and
  features of all proposers.
- `without gaps (features)`: without a group of features.
- `without listed`: without the linear classifiers of listed labels.

Differences are those from the row `everything`, with 95 % intervals of the
paired bootstrap over documents. Rankers with other seeds would differ too; the
intervals do not show this. The second table has the calibration error of the
probabilities of `everything`. A row takes as long as the ranker of the run, and
its features. With --quick, each ranker is one model instead of several, and
learns from every third pair. All rows are then a little worse, and take
less than half the time.
"""

from collections.abc import Iterator, Mapping, Sequence
import dataclasses
import time

from absl import app, flags
import numpy as np

from xjax.core.console import show_log
from xjax.core.progress import Progress
from xjax.core.ranking import Lists, Query
from xjax.core.types import PAD
from xjax.data.documents import Documents
from xjax.data.formats.corpus_builder import TRAIN
from xjax.data.load import load_corpus
from xjax.data.schema import Corpus, Split
from xjax.judge.comparison import SystemDifference, compare
from xjax.judge.comparison_request import ComparisonRequest
from xjax.judge.judge import ECE_ABOVE
from xjax.judge.label_lists import list_length
from xjax.judge.make_predictions import predict
from xjax.judge.metrics.calibration_error import ABOVE, reliability
from xjax.judge.metrics.slices import ALL
from xjax.judge.predictions import Predictions
from xjax.models.contract import DEV, Run
from xjax.models.linear.listed import ListedLinear
from xjax.models.scorer import Scorer, documents_for
from xjax.models.stack.pair_features import PairFeatures
from xjax.models.stack.ranker import RankerPairs
from xjax.models.stack.ranker_training import RankerTraining
from xjax.models.stack.stack_model import StackModel
from xjax.models.stack.stack_pairs import LISTED, RowsAndDates, StackPairs
from xjax.models.stack.stack_scorer import StackScorer
from xjax.run.judging import judged_probabilities
from xjax.run.open_run import OpenRun, open_run
from xjax.train.preemption import Preemption

EVERYTHING, BATCH = 'everything', 512
Result = tuple[Predictions, float]  # with the seconds of the ranker

_WORKDIR = flags.DEFINE_string(
  'workdir', None, 'Folder of the run.', required=True
)
_SPLIT = flags.DEFINE_string('split', DEV, 'Split of the judged documents.')
_METRICS = flags.DEFINE_list(
  'metrics', ['RP@5', 'nDCG@5'], 'The first metric is shown for slices too.'
)
_WITHOUT = flags.DEFINE_multi_string(
  'without', [], 'Proposers to leave out together, separated by commas.'
)
_ONLY = flags.DEFINE_list(
  'only', [], 'Shows only the rows whose names contain one of these texts.'
)
_QUICK = flags.DEFINE_bool(
  'quick',
  False,
  'Each ranker is one model, and learns from every third document.',
)


def main(argv: list[str]) -> None:
  """Trains and judges all rankers, and prints both tables."""
  del argv
  show_log()
  run = open_run(_WORKDIR.value)
  check_lists(run)
  config, splits = run.config, [TRAIN, _SPLIT.value]
  corpus = load_corpus(config.data, config.seed, run.space, splits)
  if run.workdir.digests().get(TRAIN) != corpus.splits[TRAIN].digest:
    raise app.UsageError('the run was trained on other documents')
  run = dataclasses.replace(run, space=corpus.label_space)
  with Preemption() as preemption:
    known = known_lists(run, corpus.split(_SPLIT.value))
    results = dict(Study(run, corpus, known, preemption).results())
  systems = {name: predictions for name, (predictions, _) in results.items()}
  plan = ComparisonRequest(_METRICS.value, by_frequency=True, iterations=1)
  usual, everything = config.eval.criteria(), systems[EVERYTHING]
  criteria = plan.request().criteria(everything, usual=usual)
  differences = compare(systems, criteria, plan).differences
  print_table(rows_of(differences, results))
  print_table(calibration_rows(run, everything))


def check_lists(run: OpenRun) -> None:
  """Checks that a run is a stack that has the lists of its folds."""
  model = run.config.model
  if not isinstance(model, StackModel):
    raise app.UsageError('the run is no stack')
  for name in run.scorer.stages:
    for fold in range(model.folds):
      path = run.workdir.model / f'fold_{fold}_{name}.npz'
      if not path.exists():  # RankerTraining would train the proposer again
        raise app.UsageError(f'{path} is missing')
  for name in ','.join([*_WITHOUT.value, *run.scorer.stages]).split(','):
    if name not in run.scorer.stages:
      raise app.UsageError(
        f'--without: {name!r} is not in {[*run.scorer.stages]}'
      )


class KnownLists(Scorer):
  """Stands in for a proposer whose lists of a split are known.

  Attributes:
    masks: bool [L], the slices of the lists after list 0.
    lists: the lists of N documents; list 0 is over all labels.
  """

  def __init__(
    self, proposer: Scorer, masks: Sequence[np.ndarray], lists: Lists
  ):
    self.n_labels = proposer.n_labels
    self.score_kind = proposer.score_kind
    self.fixed_labels = proposer.fixed_labels
    self.trained = getattr(proposer, 'trained', None)  # of NeighboursScorer
    self.masks, self.lists = [mask[: self.n_labels] for mask in masks], lists

  def rank(self, documents: Documents, query: Query) -> Lists:
    """Returns the known lists of documents; their length is query.k."""
    query = query.for_labels(self.n_labels)
    place = {mask.tobytes(): 1 + at for at, mask in enumerate(self.masks)}
    lists = [0, *(place[mask.tobytes()] for mask in query.slices)]
    rows = documents.numbers
    if rows is None:
      rows = np.arange(len(documents))
    at = np.ix_(lists, rows)
    details = self.lists.details_GNKD[at] if query.details else None
    return Lists(self.lists.ids_GNK[at], self.lists.scores_GNK[at], {}, details)


@dataclasses.dataclass(frozen=True, eq=False)
class StudiedPairs(StackPairs):
  """Reads documents as the whole stack does, with fewer proposers."""

  whole: StackPairs | None = None

  def read(self, documents: Documents) -> RowsAndDates:
    return self.whole.read(documents)


def known_lists(run: OpenRun, split: Split) -> dict[str, KnownLists]:
  """Asks each proposer for its lists over all labels and over each slice."""
  masks = [run.space.train_counts == 0, *run.space.masks().values()]
  documents, known = Documents.of_split(split).remembering(), {}
  for x in run.scorer.pairs.proposers:
    size = list_length(x.scored, x.scorer.n_labels)
    with Progress(f'lists of {x.name}', len(split)) as shown:
      query = Query(
        size,
        tuple(masks),
        run.space.allowed,
        details=len(x.details),
        on_block=shown.update,
      )
      read = documents_for(x.scorer, documents)
      known[x.name] = KnownLists(x.scorer, masks, x.scorer.rank(read, query))
  return known


@dataclasses.dataclass(frozen=True, eq=False)
class Study:
  """Trains rankers, and predicts the labels of a split with each of them.

  Attributes:
    run: the stack, with all labels of the corpus.
    corpus: the splits train and --split.
    known: the lists of the proposers, by name.
    preemption: notices Ctrl-C; its context has been entered.
  """

  run: OpenRun
  corpus: Corpus
  known: Mapping[str, KnownLists]
  preemption: Preemption

  def results(self) -> Iterator[tuple[str, Result]]:
    """Yields the names and results of all rows."""
    features, rows = self.run.config.model.features, {}
    linear = self.run.config.model.linear
    for out in (*self.known, *_WITHOUT.value):
      kept = {x: y for x, y in self.known.items() if x not in out.split(',')}
      rows[f'without {out.replace(",", ", ")}'] = kept, features
    for group in vars(features):
      fewer = dataclasses.replace(features, **{group: False})
      if any(vars(fewer).values()) and fewer != features:
        rows[f'without {group} (features)'] = self.known, fewer
    if linear.reads:
      rows[f'without {LISTED}'] = self.known, features
    rows = {row: x for row, x in rows.items() if x[0] and is_wanted(row)}
    if not rows:
      raise app.UsageError('--only: no row has such a name')
    yield EVERYTHING, self.result(self.known, features, linear)
    for row, (kept, fewer) in rows.items():
      own = ListedLinear() if row == f'without {LISTED}' else linear
      yield row, self.result(kept, fewer, own)

  def result(
    self,
    lists: Mapping[str, KnownLists],
    features: PairFeatures,
    linear: ListedLinear,
  ) -> Result:
    """Trains a ranker for some proposers, and predicts the whole split."""
    run, model = self.run, self.run.config.model
    model = dataclasses.replace(model, features=features, linear=linear)
    config = dataclasses.replace(run.config, model=model)
    numbers = [n for n, x in enumerate(model.proposers) if x.name in lists]
    stack = Run(config, run.workdir, self.preemption)
    training = RankerTraining(stack, self.corpus, numbers, lists)
    data = training.data()
    check = self.preemption.check
    start, chosen = time.perf_counter(), model.ranker
    if _QUICK.value:
      chosen, data = dataclasses.replace(chosen, models=1), every_third(data)
    ranker = chosen.train(data, config.seed, config.train.workers, check)
    seconds = time.perf_counter() - start
    whole = run.scorer.pairs
    proposers = [
      dataclasses.replace(x, scorer=lists[x.name])
      for x in whole.proposers
      if x.name in lists
    ]
    pairs = StudiedPairs(
      proposers,
      whole.labels,
      model.features,
      whole.linear if any(x in lists for x in linear.reads) else None,
      whole.use if any(x.dated for x in proposers) else None,
      whole.listed_L,
      whole,
    )
    scorer = StackScorer(pairs, ranker, run.scorer.reader, BATCH)
    split, depth = self.corpus.split(_SPLIT.value), config.eval.depth
    predictions = predict(scorer, split, run.space, depth)
    return predictions, seconds


def every_third(data: RankerPairs) -> RankerPairs:
  """Returns every third pair."""
  arrays = (x[::3] for x in (data.features_XF, data.gold_X, data.fold_X))
  features_XF, gold_X, fold_X = arrays
  return RankerPairs(features_XF, gold_X, data.names, fold_X)


def is_wanted(row: str) -> bool:
  """Returns whether --only asks for a row."""
  return not _ONLY.value or any(text in row for text in _ONLY.value)


def rows_of(
  differences: Sequence[SystemDifference], results: Mapping[str, Result]
) -> Iterator[list[str]]:
  """Yields the rows of the first table."""
  first, cells = _METRICS.value[0], {}
  columns = {metric: (ALL, metric) for metric in _METRICS.value}
  columns |= {f'{name} {first}': (name, first) for name in ('few', 'zero')}
  for row in differences:
    key, cell = (row.slice, row.metric), number(row.value)
    if row.interval and row.metric == first:
      ends = f'{row.interval.low:+.4f}, {row.interval.high:+.4f}'
      cell += f' ({row.difference:+.4f} [{ends}])'
    cells[row.system, key] = cell
    cells[EVERYTHING, key] = number(row.baseline)
  yield ['variant', *columns, 'ranker, s']
  for name, (_, seconds) in results.items():
    values = [cells.get((name, key), '-') for key in columns.values()]
    yield [name, *values, f'{seconds:.1f}']


def calibration_rows(
  run: OpenRun, predictions: Predictions
) -> Iterator[list[str]]:
  """Yields the rows of the second table."""
  asked = _SPLIT.value, run.config.eval.calibration, run.calibration
  shown_NK, lists = judged_probabilities(predictions, *asked), predictions.lists
  hits_NK = lists[ALL].hits(predictions.gold, len(predictions.labels))
  yield ['slice', ECE_ABOVE, f'listed labels above {ABOVE}', 'gold among them']
  for name, mask in predictions.masks.items():
    inside_NK = (lists[ALL].ids != PAD) & mask[lists[ALL].ids]
    shown, hits = shown_NK[inside_NK], hits_NK[inside_NK]
    counts = (shown > ABOVE).sum(), hits[shown > ABOVE].sum()
    error = reliability(shown, hits).ece_above
    yield [name, number(error), *(f'{count:,}' for count in counts)]


def number(value: float | None) -> str:
  """Returns a value as text; '-' if it is missing."""
  return '-' if value is None else f'{value:.4f}'


def print_table(rows: Iterator[list[str]]) -> None:
  """Prints a table in Markdown; its first row is the header."""
  header, *others = rows
  for row in header, ['---'] * len(header), *others:
    print(f'| {" | ".join(row)} |')
  print()


if __name__ == '__main__':
  app.run(main)
