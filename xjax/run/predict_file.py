"""Uses a finished run to predict the labels of documents in a file.

The code of metrics and strategies is imported only if it is used. So a label
tree tags documents without loading JAX.
"""

from collections.abc import Callable, Iterator, Sequence
import dataclasses
import os
import pathlib
import sys
import typing

from absl import logging
import numpy as np

from xjax.core.allocation import enough_memory
from xjax.core.atomic import atomic_write, write_json
from xjax.core.errors import ConfigError
from xjax.core.texts import known_name
from xjax.core.types import PAD, Ragged
from xjax.data.documents import Documents
from xjax.data.files.faults import plural
from xjax.data.files.file_set import check_unlisted, writing_set
from xjax.data.formats.corpus_builder import SourceCorpus
from xjax.data.labels import add_outside, read_new_labels
from xjax.data.load import read_input
from xjax.data.schema import Document, LabelSpace, Split
from xjax.data.vectors.feature_files import read_features
from xjax.data.vectors.feature_rows import FeatureRows
from xjax.judge.calibration import shown_probabilities
from xjax.judge.label_lists import LabelLists
from xjax.judge.make_predictions import predict
from xjax.judge.metrics.slices import ALL
from xjax.judge.prediction_lines import (
  ExplainedDocument,
  ExplainedLabel,
  Explanations,
  prediction_line,
)
from xjax.judge.predictions import Predictions
from xjax.models.explanations import LabelExplanations
from xjax.run.open_run import OpenRun, open_run

if typing.TYPE_CHECKING:
  from xjax.run.strategies.strategy_request import StrategyRequest


@dataclasses.dataclass(frozen=True, eq=False)
class PredictedDocuments:
  run: OpenRun  # that has predicted the labels
  lists: LabelLists  # with the model's scores before calibration
  split: Split
  space: LabelSpace  # of the lists

  @property
  def size(self) -> str:
    documents = plural(len(self.split), 'document')
    return f'{documents}, {plural(int(self.lists.lengths.sum()), "label")}'

  def explanations(self, words: int, n_first: int) -> LabelExplanations:
    return self.run.explanations(
      self.split.documents, self.lists.ids, words, n_first
    )

  def lines(self, explanations: LabelExplanations | None) -> Iterator[str]:
    """Yields a JSON line per document, with words if there are explanations."""
    for row, id_ in enumerate(self.split.ids):
      whys, features, shown = None, (), 0
      if explanations is not None:
        whys = explanations.why(row)
        features, shown = explanations.features(row), explanations.words
      line = prediction_line(
        id_,
        self.lists.ids[row],
        self.run.readable(self.lists.ids[row], self.lists.scores[row]),
        self.space.labels,
        whys,
        features,
        shown,
      )
      yield line + '\n'

  def explained(
    self, explanations: LabelExplanations, row: int
  ) -> ExplainedDocument:
    """Returns a document for a page; explanations must have all its words."""
    document, words = explanations.read(row)
    is_word_T = np.array([word.start < word.end for word in words], bool)
    ids_K = self.lists.ids[row]
    real = ids_K != PAD
    scores = self.run.readable(ids_K[real], self.lists.scores[row, real])
    gold, whys = self.split.documents[row].labels, explanations.why(row)
    features = explanations.features(row) or [()] * len(ids_K)
    labels = [
      ExplainedLabel(
        id=self.space.ids[at],
        name=self.space.labels.shown(at),
        score=float(score),
        is_gold=None if gold is None else at in self.split.gold[row],
        why=why,
        weights_T=weights_T[: len(words)] * is_word_T,
        features=parts,
      )
      for at, score, why, weights_T, parts in zip(
        ids_K[real], scores, whys, explanations.first[row][real], features
      )
    ]
    return ExplainedDocument(document, words, labels)


_MARK = '.judged.json'
STREAM = '-'  # standard input or output
_INPUT = 'input'
_SHOWN = 500  # a page of explanations shows at most this many documents


@enough_memory('choose a smaller --k, or give fewer documents at a time')
def predict_file(
  workdir: str | os.PathLike,
  source: str,
  output: str,
  k: int,
  labels: str = '',
  explain: int = 0,
  features: str = '',
  strategy: 'StrategyRequest | None' = None,
  step: int | None = None,
  page: Callable[[Explanations], str] | None = None,
  threshold: str = '',
  skip_bad_lines: bool = False,
) -> Explanations | None:
  """Writes the k best labels of each document of a file, as JSON lines.

  The workdir of the run is needed, but not the run's corpus. If the output is
  X.jsonl, X.npz, X.metrics.json, X.html (with `explain` and `page`) and
  X.judged.json are written with it, as one set; see docs/workdir.md. X.npz has
  gold labels only if those of all documents are known, because it cannot mark
  unknown gold labels.

  Args:
    workdir: folder of the run.
    source: path of the documents, in the format of the run's corpus or as JSON
      lines; '-' is standard input.
    output: path X.jsonl; '-' is standard output.
    k: length of the lists.
    labels: path of further labels to score (read_new_labels), or ''.
    explain: number of words to show for each label.
    features: path, without its suffix, of the documents' vectors, or ''.
    strategy: chooses the labels in place of the k best scores. They are written
      in its order, and are the lists over all labels of X.npz.
    step: None for the best checkpoint.
    page: returns the HTML of X.html.
    threshold: 'tuned' or a probability: only the labels that it assigns are
      written to X.jsonl, at most k. '' writes all k labels.
    skip_bad_lines: whether faulty lines are left out.

  Returns:
    The contents of X.html; None if `explain` is 0 or the output is '-'.
  """
  source, output = os.path.expanduser(source), os.path.expanduser(output)
  _check(source, output, k, explain)
  if output != STREAM:
    _check_beside(pathlib.Path(output), bool(explain and page))
  if threshold and strategy:
    raise ConfigError(
      f'--threshold={threshold}: a strategy chooses the number of labels; give '
      'only one of --threshold and --strategy'
    )
  run = open_with_labels(workdir, labels, step)
  if explain:
    run.check_explains()
  documents = read_input(run.config.data, source, skip_bad_lines)
  split, space, labelled = _gold_of(documents, run.space)
  split = dataclasses.replace(split, features=_vectors_of(split, features, run))
  predictions, lists = _rank(run, split, space, k, strategy)
  if threshold:
    from xjax.run.evaluate_split import Threshold

    lists = Threshold.of(threshold, run).keep(lists, run)
  if not strategy:  # which has an order of its own
    lists = run.shown(lists)
  predicted = PredictedDocuments(run, lists, split, space)
  whys = predicted.explanations(explain, _SHOWN) if explain else None
  if output == STREAM:
    sys.stdout.writelines(predicted.lines(whys))
    logging.info('standard output: %s', predicted.size)
    return None
  path, explanations = pathlib.Path(output), None
  if whys is not None:
    shown = tuple(predicted.explained(whys, i) for i in range(len(whys.first)))
    attends = run.scorer.attends
    explanations = Explanations(path, shown, len(split), explain, attends)
  with writing_set(path.with_suffix(_MARK), {}) as new:
    _save_beside(new / path.name, predictions, labelled, run, strategy)
    with atomic_write(new / path.name) as file:
      file.writelines(predicted.lines(whys))
    if explanations and page:
      with atomic_write((new / path.name).with_suffix('.html')) as file:
        file.write(page(explanations))
    others = sorted({file.name for file in new.iterdir()} - {path.name})
  logging.info(
    '%s: %s; also written: %s', path, predicted.size, ', '.join(others)
  )
  return explanations


def open_with_labels(
  workdir: str | os.PathLike, labels: str = '', step: int | None = None
) -> OpenRun:
  """Opens the model of a run, and adds the new labels of a file, if any."""
  run = open_run(workdir, step)
  if not labels:
    return run
  run.check_reads_names()
  return run.with_labels(read_new_labels(labels, run.space))


def _rank(
  run: OpenRun,
  split: Split,
  space: LabelSpace,
  k: int,
  strategy: 'StrategyRequest | None',
) -> tuple[Predictions, LabelLists]:
  """Returns predictions of at least k labels, and the labels to write."""
  runner = None
  if strategy:
    from xjax.run.strategies.strategy_request import StrategyRunner

    runner = StrategyRunner.of(strategy, run)
  depth = max(k, run.config.eval.depth)
  # The documents are of no split of the run, whose tokens would be cached.
  documents = Documents.of(split.documents, split.features)
  predictions = predict(run.scorer, split, space, depth, documents=documents)
  if runner is None:
    return predictions, predictions.lists[ALL].first(k)
  return runner.choose(predictions, split)


def _vectors_of(split: Split, stem: str, run: OpenRun) -> FeatureRows | None:
  if not stem:
    return None
  run.check_reads_features()
  return read_features(stem, split.ids)


def _save_beside(
  path: pathlib.Path,
  predictions: Predictions,
  labelled: np.ndarray,
  run: OpenRun,
  strategy: 'StrategyRequest | None',
) -> None:
  """Writes X.npz, X.metrics.json; `labelled` [N]: are gold labels known?"""
  if labelled.any():
    from xjax.judge.judge import judge
    from xjax.run.evaluate_split import saved_threshold

    criteria = run.config.eval.criteria()
    if strategy:
      criteria, threshold = strategy.criteria(criteria), None
    else:
      threshold = saved_threshold(run.workdir, run.step)
    judged, shown_NK = predictions.of_documents(labelled), None
    if not strategy:
      shown_NK = shown_probabilities(judged, run.calibration)
    metrics = judge(judged, criteria, threshold, shown_NK)
    write_json(path.with_suffix('.metrics.json'), metrics)
  if not labelled.all():
    predictions = dataclasses.replace(predictions, gold=None)
  predictions.save(path.with_suffix('.npz'))


def _check(source: str, output: str, k: int, explain: int) -> None:
  if k < 1:
    raise ConfigError(f'--k={k}: must be at least 1')
  if explain < 0:
    raise ConfigError(
      f'--explain={explain}: must be a number of words, at least 0'
    )
  if output == STREAM:
    return
  if not output.endswith('.jsonl'):
    raise ConfigError(f'--output={output}: must end in .jsonl, or be -')
  if source != STREAM and os.path.realpath(source) == os.path.realpath(output):
    raise ConfigError(
      f'--output={output}: this is the input file; choose another file'
    )


def _check_beside(path: pathlib.Path, has_page: bool) -> None:
  """Checks that the files beside X.jsonl replace no file of the user."""
  suffixes = '.npz', '.metrics.json', *(['.html'] if has_page else [])
  names = [path.with_suffix(suffix).name for suffix in suffixes]
  remedy = 'move it, or choose another --output'
  check_unlisted(path.with_suffix(_MARK), names, '`xjax predict`', remedy)


def _gold_of(
  documents: Sequence[Document], space: LabelSpace
) -> tuple[Split, LabelSpace, np.ndarray]:
  """Returns documents as a split, all labels, and bool [N]: is gold known?"""
  labels = [document.labels for document in documents]
  split, space = labelled_split(documents, labels, space)
  return split, space, np.array([ids is not None for ids in labels])


def labelled_split(
  documents: Sequence[Document],
  labels: Sequence[Sequence[str] | None],
  space: LabelSpace,
) -> tuple[Split, LabelSpace]:
  """Returns documents as a split, and the space with their new labels last."""
  records = [
    (doc.id, dict.fromkeys(known_name(x, space.ids) for x in ids or ()))
    for doc, ids in zip(documents, labels, strict=True)
  ]
  used = dict.fromkeys(id_ for _, labels in records for id_ in labels)
  left_out = set(space.left_out_ids)  # these are no misses
  unknown = [x for x in used if x not in space.index and x not in left_out]
  if unknown:
    logging.warning(
      'the model does not know %s of the documents, such as %s; each is a miss '
      'of the model in all metrics',
      plural(len(unknown), 'label'),
      ', '.join(f'{id_!a}' for id_ in unknown[:3]),
    )
  space = add_outside(space, SourceCorpus(_INPUT, (), tuple(used), {}, ()))
  split = Split(
    name=_INPUT,
    ids=tuple(id_ for id_, _ in records),
    gold=Ragged.of(
      [sorted(space.index[id_] for id_ in ids) for _, ids in records]
    ),
    documents=documents,
    digest='',
  )
  return split, space
