"""Tagging a file of documents with a finished run."""

from collections.abc import Iterator, Sequence
import dataclasses
import os
import pathlib
import sys

import numpy as np

from xjax.core.atomic import atomic_write, write_json, writing
from xjax.core.errors import ConfigError
from xjax.core.types import Ragged
from xjax.data.labels import add_outside
from xjax.data.load import read_input
from xjax.data.raw import RawCorpus
from xjax.data.schema import Document, LabelSpace, Split
from xjax.evaluate.calibration import Calibration
from xjax.evaluate.evaluator import predict
from xjax.evaluate.judge import judge
from xjax.evaluate.predictions import Predictions
from xjax.evaluate.text import prediction_line
from xjax.metrics.slices import ALL
from xjax.train.evaluation import saved_threshold
from xjax.train.predictor import load_predictor
from xjax.train.workdir import Workdir

STREAM = '-'  # standard input or output
_INPUT = 'input'


def tag_file(
  workdir: str | os.PathLike, source: str, output: str, k: int
) -> None:
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

  Raises:
    ConfigError: output or k is impossible.
    DataError: a fault in the documents or in the workdir.
  """
  source, output = os.path.expanduser(source), os.path.expanduser(output)
  _check(source, output, k)
  predictor = load_predictor(workdir)
  config = predictor.config
  documents = read_input(config.data, source)
  split, space, labelled = _gold_of(documents, predictor.space)
  batches = predictor.text_batches(documents)
  depth = max(k, config.eval.depth)
  predictions = predict(predictor, batches, split, space, depth)
  lines = _lines(predictions, space, k, predictor.calibration)
  if output == STREAM:
    sys.stdout.writelines(lines)
    return
  path = pathlib.Path(output)
  metrics = path.with_suffix('.metrics.json')
  with writing(metrics):
    metrics.unlink(missing_ok=True)  # of another input, perhaps
  if labelled.any():
    threshold = saved_threshold(Workdir.at(workdir), predictor.step)
    judged = predictions.of_documents(labelled)
    write_json(metrics, judge(judged, config.eval.criteria(), threshold))
  if not labelled.all():
    predictions = dataclasses.replace(predictions, gold=None)
  predictions.save(path.with_suffix('.npz'))
  with atomic_write(path) as file:
    file.writelines(lines)


def _check(source: str, output: str, k: int) -> None:
  if k < 1:
    raise ConfigError(f'--k={k}: must be at least 1')
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


def _lines(
  predictions: Predictions,
  space: LabelSpace,
  k: int,
  calibration: Calibration | None,
) -> Iterator[str]:
  lists = predictions.lists[ALL]
  for row, id_ in enumerate(predictions.doc_ids):
    yield (
      prediction_line(
        id_,
        lists.ids[row, :k],
        lists.scores[row, :k],
        space.labels,
        predictions.score_kind,
        calibration,
      )
      + '\n'
    )
