"""Defines runs of Exact Match, which finds label names in texts.

Nothing is trained.
"""

from collections.abc import Mapping, Sequence
import dataclasses

from xjax.config.run import Config
from xjax.data.new_labels import add_new_labels
from xjax.data.schema import Corpus, Label, LabelSpace
from xjax.run.contract import Fit, Fitted
from xjax.run.judging import Metrics
from xjax.run.load import load_calibration
from xjax.run.predictor import Predictor
from xjax.score.config import ExactMatchModel
from xjax.score.exact_match import DescriptorMatcher, MatchedLabels
from xjax.train.preemption import Preemption
from xjax.train.sparse_inputs import TextInputs
from xjax.train.workdir import Workdir

_STEP = 0  # the only step, because nothing is trained


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

  Raises:
    DataError: no label has a name.
  """
  labels = space.labels[: space.n_inside]
  names = [
    (label.name, *(label.alt if config.model.alt else ())) for label in labels
  ]
  inputs = TextInputs(
    config, DescriptorMatcher(names, config.data.tokens.max_tokens)
  )
  scorer = MatchedLabels(len(labels))
  return NamePredictor(config, space, inputs, scorer, _STEP, folder)


def load_exact_match(folder: Workdir, config: Config) -> NamePredictor:
  """Loads the model of a run; only files of the workdir are read.

  Raises:
    DataError: a file of the workdir is missing or damaged.
  """
  model = name_predictor(config, folder.label_space(), folder)
  method, kind = config.eval.calibration, model.score_kind
  calibration = load_calibration(folder, method, _STEP, kind)
  return dataclasses.replace(model, calibration=calibration)


@dataclasses.dataclass(frozen=True)
class ExactMatchFit(Fit):
  """Sets up Exact Match in the workdir of a run."""

  models = (ExactMatchModel,)
  load = staticmethod(load_exact_match)

  def check_start(self) -> None:
    """Checks nothing, because the config checks find every possible fault."""

  def check_corpus(self, corpus: Corpus, prior: Mapping[str, Metrics]) -> None:
    """Checks that the labels of a corpus have names.

    Raises:
      DataError: no label has a name.
    """
    del prior
    name_predictor(self.config, corpus.label_space, self.workdir)

  def fit(self, corpus: Corpus, preemption: Preemption) -> Fitted:
    """Builds the model, which needs no training."""
    del preemption
    model = name_predictor(self.config, corpus.label_space, self.workdir)
    size = self.workdir.labels.stat().st_size
    return Fitted(0, _STEP, model.score_kind, size, lambda: model)
