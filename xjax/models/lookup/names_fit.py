"""Defines runs that find label names, or parts of them, in texts.

No classifier is trained.
"""

from collections.abc import Mapping, Sequence
import dataclasses
import pathlib

from xjax.data.formats.draft import TRAIN
from xjax.data.new_labels import add_new_labels
from xjax.data.schema import Corpus, Label, LabelSpace
from xjax.data.text.word_shares import TextFeatures
from xjax.models.config import Config
from xjax.models.fit_contract import Fit, Fitted
from xjax.models.load import calibrated
from xjax.models.lookup.exact_match import (
  DescriptorMatcher,
  MatchedLabels,
  check_letters,
)
from xjax.models.lookup.names import NameCoverage, UnitCounts, UnitSplitter
from xjax.models.model_configs import ExactMatchModel, NamesModel
from xjax.models.predictor import Predictor
from xjax.models.sparse_inputs import SplitTexts, TextInputs
from xjax.models.workdir import Workdir
from xjax.run.judging import Metrics
from xjax.train.preemption import Preemption

_STEP = 0  # the only step, because nothing is trained
_COUNTS = 'model/units.npz'
# Two rare words that occur several times have about this score.
_ASSIGNED_ABOVE = 20.0


class NamePredictor(Predictor):
  """Predicts labels whose names occur in a text."""

  def with_labels(self, labels: Sequence[Label]) -> 'NamePredictor':
    """Returns a predictor with more labels, as Predictor.with_labels does.

    The calibration stays the same.
    """
    predictor = name_predictor(
      self.config, add_new_labels(self.space, labels), self.workdir
    )
    return dataclasses.replace(predictor, calibration=self.calibration)


def name_predictor(
  config: Config, space: LabelSpace, folder: Workdir
) -> NamePredictor:
  """Returns a predictor of the trained, held-out and new labels of a space.

  Args:
    config: config of the run, with ExactMatchModel or NamesModel.
    space: the labels.
    folder: workdir of the run. If the model is a NamesModel, it has the counts
      of units.

  Raises:
    DataError: no label has a name, or the counts are missing or damaged.
  """
  names = _names(config, space)
  above = _ASSIGNED_ABOVE if isinstance(config.model, NamesModel) else 0.0
  inputs = TextInputs(config, _featuriser(config, names, folder))
  scorer = MatchedLabels(len(names), above)
  return NamePredictor(config, space, inputs, scorer, _STEP, folder)


def _names(config: Config, space: LabelSpace) -> list[tuple[str, ...]]:
  """Returns the names to search for, for each label."""
  labels = space.labels[: space.n_inside]
  return [
    (label.name, *(label.alt if config.model.alt else ())) for label in labels
  ]


def _featuriser(
  config: Config, names: Sequence[Sequence[str]], folder: Workdir
) -> TextFeatures:
  """Returns what turns texts into scores of labels."""
  max_words = config.data.tokens.max_tokens
  if isinstance(config.model, ExactMatchModel):
    return DescriptorMatcher(names, max_words)
  counts = UnitCounts.load(_counts_path(folder))
  folder.check(_counts_path(folder))
  return NameCoverage(names, _splitter(config), counts, max_words)


def _splitter(config: Config) -> UnitSplitter:
  return UnitSplitter(config.model.units, config.model.language)


def _counts_path(folder: Workdir) -> pathlib.Path:
  return folder.path / _COUNTS


def load_names(folder: Workdir, config: Config) -> NamePredictor:
  """Loads the model of a run; only files of the workdir are read.

  Raises:
    DataError: a file of the workdir is missing or damaged.
  """
  return calibrated(name_predictor(config, folder.label_space(), folder))


@dataclasses.dataclass(frozen=True)
class ExactMatchFit(Fit):
  """Sets up Exact Match in the workdir of a run."""

  models = (ExactMatchModel,)
  load = staticmethod(load_names)

  def check_start(self) -> None:
    """Checks nothing, because the config checks find every possible fault."""

  def check_corpus(self, corpus: Corpus, prior: Mapping[str, Metrics]) -> None:
    """Checks that the labels of a corpus have names.

    Raises:
      DataError: no label has a name.
    """
    del prior
    check_letters(_names(self.config, corpus.label_space))

  def fit(self, corpus: Corpus, preemption: Preemption) -> Fitted:
    """Builds the model, which needs no training."""
    del preemption
    model = name_predictor(self.config, corpus.label_space, self.workdir)
    size = self.workdir.labels.stat().st_size
    return Fitted(0, _STEP, model.score_kind, size, lambda: model)


@dataclasses.dataclass(frozen=True)
class NamesFit(ExactMatchFit):
  """Counts the parts of names in training documents, in a run's workdir."""

  models = (NamesModel,)
  label_free = (_COUNTS,)

  def shares_files(self, other: Fit) -> bool:
    """Returns whether another fit counts the same units; see Fit."""
    same = self.config.model == other.config.model
    return same and super().shares_files(other)

  def fit(self, corpus: Corpus, preemption: Preemption) -> Fitted:
    """Counts the units of training texts, if this was not done yet."""
    path = _counts_path(self.workdir)
    if not path.exists():
      texts = SplitTexts(corpus.splits[TRAIN].documents)
      max_words = self.config.data.tokens.max_tokens
      counts = UnitCounts.fit(texts, _splitter(self.config), max_words)
      with self.workdir.recording(path):
        counts.save(path)
    return super().fit(corpus, preemption)
