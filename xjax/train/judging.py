"""Judging the splits of a corpus, with the popularity prior beside."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from absl import logging

from xjax.core.distributed import barrier, is_host0
from xjax.core.errors import ConfigError
from xjax.core.types import Batch, Scorer
from xjax.data.schema import Corpus
from xjax.evaluate.evaluator import (
  PROTOCOL,
  judge,
  popularity,
  predict,
  save_evaluation,
  tune_threshold,
)
from xjax.train.config import EvalConfig
from xjax.train.inputs import Inputs
from xjax.train.workdir import Workdir

JUDGED = ('dev', 'test')

# {protocol: {slice: {metric: value}}}
Metrics = dict[str, dict[str, dict[str, Any]]]


def prior_metrics(corpus: Corpus, config: EvalConfig) -> dict[str, Metrics]:
  """Metrics by split of the popularity prior."""
  space = corpus.label_space
  return {
    name: judge(popularity(space, corpus.splits[name], config.depth), config.ks)
    for name in JUDGED
    if name in corpus.splits
  }


def check_best_metric(metric: str, dev: Metrics) -> None:
  """Refuses a metric that dev has no value for.

  Args:
    metric: 'slice/metric'.
    dev: any metrics of the dev split, such as the prior's.

  Raises:
    ConfigError: with the metrics there are.
  """
  values = {
    f'{slice_name}/{name}': value
    for slice_name, slices in dev[PROTOCOL].items()
    for name, value in slices.items()
  }
  if values.get(metric) is None:
    known = ', '.join(name for name, v in values.items() if v is not None)
    raise ConfigError(
      f'train.best_metric={metric} has no value on dev; those that have one: '
      f'{known}'
    )


def dev_judge(
  scorer: Any, inputs: Inputs, corpus: Corpus
) -> Callable[[Any, Callable[[], None]], dict[str, dict[str, Any]]]:
  """Judges parameters on dev, for the loop.

  Args:
    scorer: a ModelScorer, whose params are set anew each time.
    inputs: makes the batches.
    corpus: with a split dev.

  Returns:
    (parameters, call between batches) -> {slice: {metric: value}}.
  """
  split, space = corpus.splits['dev'], corpus.label_space
  batches = inputs.split_batches(split)
  config = inputs.config.eval

  def judge_dev(
    params: Any, between: Callable[[], None]
  ) -> dict[str, dict[str, Any]]:
    scorer.params = params
    watched = _Watched(batches, between)
    predictions = predict(scorer, watched, split, space, config.depth)
    return judge(predictions, config.ks)[PROTOCOL]

  return judge_dev


def judge_splits(
  scorer: Scorer, inputs: Inputs, corpus: Corpus, workdir: Workdir
) -> dict[str, Metrics]:
  """Judges dev and test where present and writes eval/<split>/.

  The threshold of micro-F1-tuned is tuned on dev and used on test as well;
  without a dev split there is none.
  """
  config, found, threshold = inputs.config.eval, {}, None
  for name in JUDGED:
    if name not in corpus.splits:
      continue
    split = corpus.splits[name]
    batches = inputs.split_batches(split)
    predictions = predict(
      scorer, batches, split, corpus.label_space, config.depth
    )
    if name == 'dev':
      threshold = tune_threshold(predictions)
    found[name] = judge(predictions, config.ks, threshold)
    if is_host0():
      save_evaluation(workdir.evaluation(name), predictions, found[name])
      logging.info('judged %s: %s', name, workdir.evaluation(name))
  barrier('xjax:judged')
  return found


class _Watched:
  """Batches with a call before each; as long as they are."""

  def __init__(
    self, batches: Iterable[Batch], between: Callable[[], None]
  ) -> None:
    self._batches, self._between = batches, between

  def __len__(self) -> int:
    return len(self._batches)

  def __iter__(self) -> Iterator[Batch]:
    for batch in self._batches:
      self._between()
      yield batch
