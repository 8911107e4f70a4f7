"""Tagging a file of documents with a finished run."""

from collections.abc import Iterator, Sequence
import dataclasses
import os
import pathlib
import sys

import numpy as np

from xjax.core.atomic import atomic_write, write_json, writing
from xjax.core.errors import ConfigError
from xjax.core.types import PAD, Ragged
from xjax.data.batches.feature_files import read_features
from xjax.data.batches.feature_rows import FeatureRows
from xjax.data.formats.draft import RawCorpus
from xjax.data.labels import add_outside
from xjax.data.load import read_input
from xjax.data.new_labels import read_new_labels
from xjax.data.schema import Document, LabelSpace, Split
from xjax.judge.calibration import readable_scores
from xjax.judge.judge import judge
from xjax.judge.metrics.slices import ALL
from xjax.judge.predict import predict
from xjax.judge.prediction_lines import (
  ExplainedDocument,
  ExplainedLabel,
  Explanations,
  prediction_line,
)
from xjax.judge.predictions import Lists, Predictions
from xjax.run.evaluate import saved_threshold
from xjax.run.fit import load
from xjax.run.predictor import (
  LabelExplanations,
  Predictor,
  check_describes,
  check_explains,
)
from xjax.run.strategy import Chooser, StrategyRequest
from xjax.train.inputs import check_reads_features


@dataclasses.dataclass(frozen=True, eq=False)
class TaggedDocuments:
  """Documents and the labels told of them.

  Attributes:
    predictor: of the run.
    lists: the labels, with scores as the predictor gives them.
    split: the documents.
    space: labels of the lists.
  """

  predictor: Predictor
  lists: Lists
  split: Split
  space: LabelSpace

  def attention(self, words: int, n_first: int) -> LabelExplanations:
    """What the labels attend to, as Predictor.attention."""
    return self.predictor.attention(
      self.split.documents, self.lists.ids, words, n_first
    )

  def lines(self, attention: LabelExplanations | None) -> Iterator[str]:
    """A JSON line per document, with words where there is attention."""
    for row, id_ in enumerate(self.split.ids):
      whys = None
      if attention is not None:
        whys = self.predictor.why(self.split.documents[row], attention, row)
      line = prediction_line(
        id_,
        self.lists.ids[row],
        self.lists.scores[row],
        self.space.labels,
        self.predictor.score_kind,
        self.predictor.calibration,
        whys,
      )
      yield line + '\n'

  def explained(
    self, attention: LabelExplanations, row: int
  ) -> ExplainedDocument:
    """One of the first documents, as a page shows it."""
    inputs, given = self.predictor.inputs, self.split.documents[row]
    words = inputs.words(given)
    is_word_T = np.array([word.start < word.end for word in words], bool)
    ids_K = self.lists.ids[row]
    real = ids_K != PAD
    scores = readable_scores(
      self.lists.scores[row, real],
      self.predictor.score_kind,
      self.predictor.calibration,
    )
    labels = [
      ExplainedLabel(
        id=(label := self.space.labels[at]).id,
        name=label.name,
        score=float(score),
        is_gold=None if given.labels is None else label.id in given.labels,
        weights_T=weights_T[: len(words)] * is_word_T,
      )
      for at, score, weights_T in zip(
        ids_K[real], scores, attention.first[row][real], strict=True
      )
    ]
    return ExplainedDocument(inputs.document(given), words, labels)


STREAM = '-'  # standard input or output
_INPUT = 'input'
_SHOWN = 500  # documents on a page of explanations


def tag_file(
  workdir: str | os.PathLike,
  source: str,
  output: str,
  k: int,
  labels: str = '',
  explain: int = 0,
  features: str = '',
  strategy: StrategyRequest | None = None,
) -> Explanations | None:
  """Writes the k best labels of each document of a file, as JSON lines.

  Needs nothing but the workdir. With an output X.jsonl, X.npz gets the lists
  of all slices, raw scores, at least eval.depth long, and X.metrics.json the
  metrics of those documents that have labels, if any has. X.npz has gold if
  all have: it cannot say of a document that its labels are not known.

  Args:
    workdir: of the run.
    source: a file of documents in the format of the run's corpus or as JSON
      lines; '-' is standard input.
    output: a file X.jsonl; '-' is standard output.
    k: length of the lists.
    labels: a file of labels to score as well, as read_new_labels; '': none.
    explain: how many words to tell of each label; 0: without.
    features: of the documents, as read_features has them; '': none.
    strategy: how the labels are chosen, and how many; they are told in the
      order it ranks them by, which X.npz has as the lists of all labels, and
      X.metrics.json is of them. None: the k best by score.

  Returns:
    What a page beside X.jsonl shows, where labels are explained.

  Raises:
    ConfigError: output, k or explain is impossible, or the run's head cannot
      do what is asked for, or the strategy takes what the run has not.
    DataError: a fault in the documents, the labels or the workdir.
  """
  source, output = os.path.expanduser(source), os.path.expanduser(output)
  _check(source, output, k, explain)
  predictor = _load(workdir, labels, explain)
  documents = read_input(predictor.config.data, source)
  split, space, labelled = _gold_of(documents, predictor.space)
  rows = _features_of(split, features, predictor)
  predictions, lists = _ranked(predictor, split, space, k, rows, strategy)
  tagged = TaggedDocuments(predictor, lists, split, space)
  attention = tagged.attention(explain, _SHOWN) if explain else None
  if output == STREAM:
    sys.stdout.writelines(tagged.lines(attention))
    return None
  path = pathlib.Path(output)
  _save_beside(path, predictions, labelled, predictor, strategy)
  with atomic_write(path) as file:
    file.writelines(tagged.lines(attention))
  if attention is None:
    return None
  shown = (tagged.explained(attention, i) for i in range(len(attention.first)))
  return Explanations(path, tuple(shown), len(split), explain)


def _load(workdir: str | os.PathLike, labels: str, explain: int) -> Predictor:
  predictor = load(workdir)
  if explain:
    check_explains(predictor.config)
  if not labels:
    return predictor
  check_describes(predictor.config)
  return predictor.with_labels(read_new_labels(labels, predictor.space))


def _ranked(
  predictor: Predictor,
  split: Split,
  space: LabelSpace,
  k: int,
  features: FeatureRows | None,
  strategy: StrategyRequest | None,
) -> tuple[Predictions, Lists]:
  """Lists of all slices, by score at least k long, and the labels to tell."""
  chooser = Chooser.of(strategy, predictor) if strategy else None
  batches = predictor.text_batches(split.documents, features)
  depth = max(k, predictor.config.eval.depth)
  found = predict(predictor, batches, split, space, depth)
  if chooser is None:
    return found, found.lists[ALL].first(k)
  chosen = chooser.choose(found, split, features)
  return chosen.predictions, chosen.lists


def _features_of(
  split: Split, stem: str, predictor: Predictor
) -> FeatureRows | None:
  if not stem:
    return None
  check_reads_features(predictor.config)
  return read_features(stem, split.ids)


def _save_beside(
  path: pathlib.Path,
  predictions: Predictions,
  labelled: np.ndarray,
  predictor: Predictor,
  strategy: StrategyRequest | None,
) -> None:
  """X.npz and X.metrics.json, of X.jsonl; labelled: whose gold is known."""
  metrics = path.with_suffix('.metrics.json')
  with writing(metrics):
    metrics.unlink(missing_ok=True)  # of another input, perhaps
  if labelled.any():
    criteria = predictor.config.eval.criteria()
    if strategy:
      criteria, threshold = strategy.criteria(criteria), None
    else:
      threshold = saved_threshold(predictor.workdir, predictor.step)
    judged = predictions.of_documents(labelled)
    write_json(metrics, judge(judged, criteria, threshold))
  if not labelled.all():
    predictions = dataclasses.replace(predictions, gold=None)
  predictions.save(path.with_suffix('.npz'))


def _check(source: str, output: str, k: int, explain: int) -> None:
  if k < 1:
    raise ConfigError(f'--k={k}: must be at least 1')
  if explain < 0:
    raise ConfigError(f'--explain={explain}: a number of words, or 0')
  if output == STREAM:
    return
  if not output.endswith('.jsonl'):
    raise ConfigError(f'--output={output}: must end in .jsonl, or be -')
  if source != STREAM and os.path.realpath(source) == os.path.realpath(output):
    raise ConfigError(f'--output={output}: that is the input')


def _gold_of(
  documents: Sequence[Document], space: LabelSpace
) -> tuple[Split, LabelSpace, np.ndarray]:
  """Documents with their gold, where they have it.

  Returns:
    The split, with no gold for documents whose labels are not known; the space
    with labels it lacks after its own; bool [N], whose labels are known.
  """
  found = [(document.id, document.labels) for document in documents]
  used = dict.fromkeys(id_ for _, labels in found for id_ in labels or ())
  space = add_outside(space, RawCorpus(_INPUT, (), tuple(used), {}, ()))
  split = Split(
    name=_INPUT,
    ids=tuple(id_ for id_, _ in found),
    gold=Ragged.of(
      [sorted(space.index[id_] for id_ in labels or ()) for _, labels in found]
    ),
    documents=documents,
    digest='',
  )
  return split, space, np.array([labels is not None for _, labels in found])
