"""Tagging a file of documents with a finished run."""

from collections.abc import Iterator
import dataclasses
import os
import pathlib
import sys

from xjax.core.atomic import atomic_write, write_json
from xjax.core.errors import ConfigError
from xjax.data.corpus import build_corpus
from xjax.data.load import read_input
from xjax.data.raw import RawCorpus
from xjax.data.schema import LabelSpace
from xjax.evaluate.evaluator import judge, predict
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
  of all slices, at least eval.depth long, and X.metrics.json the metrics of
  those documents that have labels, if any has.

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
  _check(source, output, k)
  predictor = load_predictor(workdir)
  config = predictor.config
  documents = read_input(config.data, source)
  raw = RawCorpus.of(source, (), {_INPUT: documents})
  # read_input has chosen the zones already.
  whole = dataclasses.replace(config.data, zones=())
  corpus = build_corpus(raw, whole, config.seed, predictor.space)
  split, space = corpus.split(_INPUT), corpus.label_space
  batches = predictor.inputs.text_batches(split.documents)
  depth = max(k, config.eval.depth)
  predictions = predict(predictor, batches, split, space, depth)
  lines = _lines(predictions, space, k)
  if output == STREAM:
    sys.stdout.writelines(lines)
    return
  path = pathlib.Path(output).expanduser()
  if not raw.label_ids:
    predictions = dataclasses.replace(predictions, gold=None)
  else:
    metrics = judge(
      predictions, config.eval.ks, saved_threshold(Workdir.at(workdir))
    )
    write_json(path.with_suffix('.metrics.json'), metrics)
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


def _lines(
  predictions: Predictions, space: LabelSpace, k: int
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
      )
      + '\n'
    )
