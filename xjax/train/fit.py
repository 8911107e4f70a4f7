"""Training from a config to judged predictions, and loading the result."""

import dataclasses
import os
import pathlib

from absl import logging

from xjax.core.distributed import barrier, is_host0
from xjax.core.errors import ConfigError, DataError
from xjax.core.mesh import make_mesh
from xjax.data.load import load_corpus
from xjax.data.schema import Corpus
from xjax.data.vocab import Vocabulary
from xjax.evaluate.calibration import Calibration
from xjax.models.descriptors import all_words
from xjax.train.calibration import saved_calibration
from xjax.train.checkpoint import read_params
from xjax.train.config import Config, NeuralTrain
from xjax.train.config_check import check_config
from xjax.train.document_features import check_features, reads_features
from xjax.train.inputs import Inputs, fit_vocabulary
from xjax.train.judging import (
  Metrics,
  check_best_metric,
  judge_splits,
  prior_metrics,
  read_splits,
)
from xjax.train.neural import NeuralRun, check_mesh
from xjax.train.predictor import Predictor, load_predictor
from xjax.train.preemption import Preemption
from xjax.train.state import from_paths
from xjax.train.warm_start import best_step, find_start
from xjax.train.word_start import check_word_vectors
from xjax.train.workdir import Workdir


@dataclasses.dataclass(frozen=True)
class FitResult:
  """What a finished run has.

  Attributes:
    workdir: its folder.
    steps: optimizer steps taken.
    best_step: of the checkpoint judged.
    metrics: by split, of that checkpoint.
    prior: by split, of the popularity prior.
    paths: by split, the folder of predictions and metrics.
    corpus: what it was trained and judged on.
    calibration: of that checkpoint's scores, if there is one.
  """

  workdir: pathlib.Path
  steps: int
  best_step: int
  metrics: dict[str, Metrics]
  prior: dict[str, Metrics]
  paths: dict[str, pathlib.Path]
  corpus: Corpus
  calibration: Calibration | None


def fit(config: Config, workdir: str | os.PathLike) -> FitResult:
  """Trains and judges a model, or goes on with the run in a workdir.

  A finished run is not trained again; raising train.steps continues it.
  Several processes call it alike.

  Args:
    config: of the run.
    workdir: its folder; made where absent.

  Raises:
    ConfigError: a field is wrong, or the workdir has another config.
    DataError: the corpus or the workdir is damaged or incomplete.
    UserError: training met a loss that is not finite.
    Preempted: SIGTERM came; calling again resumes.
  """
  check_config(config)
  folder = Workdir.at(workdir)
  with Preemption() as preemption:
    # A config that is refused, here or further on, leaves nothing behind.
    folder.compare(config)
    check_mesh(config, make_mesh(config.mesh))
    if not folder.checkpoints.exists():
      check_word_vectors(config.model.embedding)
      if config.train.init_from:
        find_start(config.train.init_from)
    corpus = load_corpus(config.data, config.seed)
    if 'train' not in corpus.splits:
      raise DataError(
        'this corpus has no train split; it has: ' + ', '.join(corpus.splits)
      )
    check_features(corpus, config)
    prior = prior_metrics(corpus, config.eval)
    if 'dev' in prior:
      check_best_metric(config.train.best_metric, prior['dev'])
    elif is_host0():
      logging.info(
        'no dev split: no early stopping, and the last checkpoint is judged'
      )
    folder.record_corpus(corpus)
    folder.open(config)
    match config.train:
      case NeuralTrain():
        return _fit_neural(config, corpus, folder, prior, preemption)
    raise ConfigError(f'no training is made from {config.train!r}')


def load(workdir: str | os.PathLike) -> Predictor:
  """The best model of a run, from its workdir alone.

  Raises:
    DataError: there is no run, or a file of it is missing or damaged.
  """
  return load_predictor(workdir)


def _fit_neural(
  config: Config,
  corpus: Corpus,
  folder: Workdir,
  prior: dict[str, Metrics],
  preemption: Preemption,
) -> FitResult:
  vocab = None
  if not reads_features(config):
    vocab = _vocabulary(config, corpus, folder)
  inputs = Inputs(config, vocab)
  run = NeuralRun.prepare(config, corpus, inputs, folder)
  scorer = run.scorer()
  at = run.train(scorer, preemption)
  best = best_step(folder)
  metrics = read_splits(corpus, folder, best)
  if metrics is None:
    like = run.plan.abstract.params
    scorer.params = from_paths(
      like, read_params(folder.checkpoints, best, like)
    )
    model = Predictor(config, corpus.label_space, inputs, scorer, best, folder)
    metrics = judge_splits(model, corpus, folder)
  return FitResult(
    workdir=folder.path,
    steps=at.step,
    best_step=best,
    metrics=metrics,
    prior=prior,
    paths={name: folder.evaluation(name) for name in metrics},
    corpus=corpus,
    calibration=saved_calibration(
      folder, config.eval.calibration, best, scorer.score_kind
    ),
  )


def _vocabulary(config: Config, corpus: Corpus, folder: Workdir) -> Vocabulary:
  """The run's vocabulary, from its workdir once it is there."""
  if is_host0() and not folder.vocab.exists():
    vocab = fit_vocabulary(corpus.split('train'), config.data)
    if config.model.head.describes:
      vocab = vocab.extended(all_words(corpus.label_space.labels))
    vocab.save(folder.vocab)
    logging.info('vocabulary: %d words', len(vocab.words))
  barrier('xjax:vocabulary')
  vocab = folder.vocabulary()
  folder.record_vocabulary(vocab)
  return vocab
