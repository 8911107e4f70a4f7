"""Runs of Exact Match: nothing is trained, all is made of the labels' names."""

from collections.abc import Mapping, Sequence
import dataclasses

from xjax.config.run import Config
from xjax.data.new_labels import add_new_labels
from xjax.data.schema import Corpus, Label, LabelSpace
from xjax.run.contract import Fit, Fitted
from xjax.run.judging import Metrics, saved_calibration
from xjax.run.predictor import Predictor
from xjax.score.config import ExactMatchModel
from xjax.score.exact_match import DescriptorMatcher, FoundLabels
from xjax.train.preemption import Preemption
from xjax.train.sparse_inputs import TextInputs
from xjax.train.workdir import Workdir

_STEP = 0  # there are no others


class NamePredictor(Predictor):
  """A predictor that knows labels by their names alone."""

  def with_labels(self, labels: Sequence[Label]) -> 'NamePredictor':
    """As Predictor.with_labels, of which a calibration is kept."""
    made = name_predictor(
      self.config, add_new_labels(self.space, labels), self.workdir
    )
    return dataclasses.replace(made, calibration=self.calibration)


def name_predictor(
  config: Config, space: LabelSpace, folder: Workdir
) -> NamePredictor:
  """Finds all labels of a space but those outside, held-out ones as well.

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
  scorer = FoundLabels(len(labels))
  return NamePredictor(config, space, inputs, scorer, _STEP, folder)


def load_exact_match(folder: Workdir, config: Config) -> NamePredictor:
  """The model of a run, from its workdir alone.

  Raises:
    DataError: a file of the workdir is missing or damaged.
  """
  model = name_predictor(config, folder.label_space(), folder)
  method, kind = config.eval.calibration, model.score_kind
  calibration = saved_calibration(folder, method, _STEP, kind)
  return dataclasses.replace(model, calibration=calibration)


@dataclasses.dataclass(frozen=True)
class ExactMatchFit(Fit):
  """A run of Exact Match in its workdir."""

  models = (ExactMatchModel,)
  load = staticmethod(load_exact_match)

  def check_start(self) -> None:
    """Nothing can be wrong that the config alone does not tell."""

  def check_corpus(self, corpus: Corpus, prior: Mapping[str, Metrics]) -> None:
    """Refuses a corpus whose labels have no names.

    Raises:
      DataError: that is so.
    """
    del prior
    name_predictor(self.config, corpus.label_space, self.workdir)

  def fit(self, corpus: Corpus, preemption: Preemption) -> Fitted:
    """The model, at once."""
    del preemption
    model = name_predictor(self.config, corpus.label_space, self.workdir)
    return Fitted(0, _STEP, model.score_kind, lambda: model)
