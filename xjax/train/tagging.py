"""Tagging a file of documents with a finished run."""

from collections.abc import Iterable, Iterator
import os
import pathlib
import sys

from xjax.core.atomic import atomic_write, write_json
from xjax.core.errors import ConfigError
from xjax.data.corpus import build_corpus
from xjax.data.load import read_input
from xjax.data.raw import RawCorpus
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
  corpus = build_corpus(raw, config.data, config.seed, predictor.space)
  split, space = corpus.split(_INPUT), corpus.label_space
  predictions = predict(
    predictor,
    predictor.inputs.text_batches(split.documents),
    split,
    space,
    max(k, config.eval.depth),
  )
  lines = _lines(predictions, space.labels, k)
  if output == STREAM:
    sys.stdout.writelines(lines)
    return
  path = pathlib.Path(output).expanduser()
  if raw.label_ids:
    metrics = judge(
      predictions, config.eval.ks, saved_threshold(Workdir.at(workdir))
    )
    write_json(path.with_suffix('.metrics.json'), metrics)
  predictions.save(path.with_suffix('.npz'))
  with atomic_write(path) as file:
    file.writelines(lines)
