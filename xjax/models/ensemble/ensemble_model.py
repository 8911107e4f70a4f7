"""Averages the lists of finished runs: ensembles.

Nothing is trained. The other runs are copied to stages/ of the workdir.
"""

from collections.abc import Iterator
import dataclasses
import math
from typing import Any

from xjax.core.config_part import AT_LEAST_1, at_most, field
from xjax.core.errors import ConfigError
from xjax.core.types import ScoreKind
from xjax.data.config import TextVectorsConfig, TokensConfig
from xjax.data.files.faults import plural
from xjax.data.schema import Corpus
from xjax.judge.calibration import Calibration, Method
from xjax.models.contract import Config, Model, Run, check_one_process
from xjax.models.ensemble.average import Averaging, EnsembleScorer, Member
from xjax.models.features import RowFeaturiser, TextFeaturiser
from xjax.models.scorer import Scorer
from xjax.models.stage import check_labels, copy_other, open_source

_FIELD = 'config.model.workdirs'


@dataclasses.dataclass
class EnsembleModel(Model):
  """Averages the lists of finished runs, without training.

  The runs may read documents in different ways. What loading their models needs
  is copied into the workdir. data.tokens is not used.
  """

  reads = (TokensConfig,)

  workdirs: tuple[str, ...] = field(
    (), 'The finished runs, each as WORKDIR[@step].'
  )
  combine: Averaging = field(Averaging.RANK, 'What is averaged over the runs.')
  depth: int = field(
    50,
    'Number of labels that each run lists for a document.',
    AT_LEAST_1,
    tiny=at_most(16),
  )
  weights: tuple[float, ...] = field(
    (), 'The weight of each run in the average. If empty, all are equal.'
  )

  def faults(self, config: Any, path: str) -> Iterator[str]:
    yield from super().faults(config, path)
    if not all(self.workdirs) or not self.workdirs:
      yield (
        f'{path}.workdirs={self.workdirs}: set it to the workdirs of finished '
        f'runs, as in --{path}.workdirs=runs/a,runs/b'
      )
    if self.weights and len(self.weights) != len(self.workdirs):
      yield (
        f'{path}.weights={self.weights}: must be empty, or have a weight for '
        f'each of {path}.workdirs={self.workdirs}'
      )
    if not all(0 < weight < math.inf for weight in self.weights):
      yield f'{path}.weights={self.weights}: all weights must be above 0'

  def token_faults(self, config: Any) -> Iterator[str]:
    """Yields nothing, because each run reads documents in its own way."""
    yield from ()

  def check(self, corpus: Corpus, run: Run) -> None:
    check_one_process(run.config)
    for name, source in zip(self.open_stages(run), self.workdirs):
      other, scorer = open_source(source, run, name, _FIELD)
      _check_reading(run.config, source, other.config)
      # Only probabilities of models can be averaged; a margin has none without
      # a calibration.
      if self.combine is Averaging.SIGMOID:
        _check_probabilities(source, scorer, other.calibration(scorer))
      theirs, ours = other.label_space(), corpus.label_space
      check_labels(source, theirs, scorer.n_labels, ours, _FIELD)

  def fit(self, corpus: Corpus, run: Run) -> None:
    """Copies the runs that are not copied yet; nothing is trained."""
    del corpus
    # A copy is made as a whole or not at all; a signal waits for the end of a
    # copy.
    with run.preemption.deferred():
      for name, source in zip(self.open_stages(run), self.workdirs):
        copy_other(source, run, name, _FIELD)
        run.preemption.check()

  def open(self, run: Run) -> EnsembleScorer:
    check_one_process(run.config)
    ours, members = run.label_space(), {}
    for name in self.open_stages(run):
      other, scorer = run.opened_stage(name)
      # A member would spend places of its lists on labels that are left out.
      theirs = other.label_space()
      left_out = *theirs.left_out_ids, *ours.left_out_ids
      space = dataclasses.replace(theirs, left_out_ids=left_out)
      members[name] = Member(scorer, space, other.calibration(scorer))
    rule = self.combine, self.depth, self.weights
    scorer = EnsembleScorer(members, *rule, run.config.eval.batch_size)
    data = run.config.data
    if data.sparse:
      scorer.unexplained = RowFeaturiser.unexplained
    elif isinstance(data.tokens, TextVectorsConfig):
      scorer.unexplained = TextFeaturiser(data, None).unexplained
    return scorer

  def open_stages(self, run: Run) -> tuple[str, ...]:
    del run
    return tuple(f'member_{number}' for number in range(len(self.workdirs)))

  def about_unseen(self, config: Config) -> str:
    del config
    return (
      f'The model averages the lists of {plural(len(self.workdirs), "run")}. '
      'It predicts a label without training documents only if one of these '
      'runs lists it.'
    )


def _check_probabilities(
  source: str, scorer: Scorer, calibration: Calibration | None
) -> None:
  if calibration is not None and calibration.method is not Method.NONE:
    return
  if scorer.score_kind is ScoreKind.MARGIN:
    raise ConfigError(
      f'{_FIELD}: the scores of {source} are margins without a calibration, so '
      'there are no probabilities to average; set config.model.combine=RANK, '
      'or calibrate the run with xjax evaluate --split=dev'
    )


def _check_reading(config: Config, source: str, theirs: Config) -> None:
  ours, others = config.data, theirs.data
  if ours.sparse != others.sparse or (
    ours.sparse and ours.tokens != others.tokens
  ):
    raise ConfigError(
      f'config.data: the run in {source} reads {type(others).__name__}(...) '
      f'with tokens={others.tokens}; all runs of an ensemble and the ensemble '
      'must read the same features, or all must read texts'
    )
