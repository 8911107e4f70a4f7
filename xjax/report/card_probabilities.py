"""Writes what the model card says of probabilities."""

from collections.abc import Iterator, Mapping
import math
from typing import Any

from xjax.data.files.faults import plural
from xjax.data.schema import FREQUENT_FROM
from xjax.judge.calibration import (
  Calibration,
  Method,
  probabilities_at,
  reliability_of,
)
from xjax.judge.files.evaluation import PREDICTIONS
from xjax.judge.judge import ECE, ECE_ABOVE, PROTOCOL
from xjax.judge.metrics.calibration_error import ABOVE, Reliability
from xjax.judge.metrics.slices import ALL
from xjax.judge.predictions import Predictions
from xjax.models.contract import DEV
from xjax.report.table import rows_table
from xjax.run.fit import FitResult
from xjax.run.judging import judged_probabilities

# Edges of the bands of probability whose labels are counted. The first band is
# not shown: nearly all listed labels are in it.
_BANDS = (0.0, ABOVE, 0.3, 0.5, 0.7, 0.9, 1.0)
_FEW = 100  # with fewer labels, a calibration error says little
_VERDICTS = (
  (0.05, 'which is small'),
  (0.1, 'so they are a rough guide'),
  (math.inf, 'which is much: do not rely on them'),
)


def probability_blocks(result: FitResult) -> Iterator[str]:
  """Yields paragraphs and a table, as Markdown.

  They say how good the probabilities are, and what the tuned threshold does.
  """
  calibration = result.calibration
  if calibration is None or calibration.method is Method.NONE:
    yield 'Scores are not calibrated.'
  else:
    yield (
      'Scores are shown as probabilities. They are calibrated by the method '
      f'{calibration.method.value}, which was fitted on '
      f'{plural(calibration.n_documents, "document")} of dev.'
    )
    if calibration.method is Method.ISOTONIC:
      yield (
        'The probabilities come in steps: all scores of a range get nearly the '
        'same probability, so many labels share a value.'
      )
  rows = []
  for name in result.metrics:
    predictions = Predictions.load(result.paths[name] / PREDICTIONS)
    diagram = _diagram(predictions, name, calibration)
    if diagram is not None:
      yield from _verdict(name, result.metrics[name][PROTOCOL][ALL], diagram)
      rows += _band_rows(name, diagram)
  if rows:
    if calibration is not None and DEV in result.metrics:
      yield (
        'Probabilities of dev are those of calibrations that did not see the '
        'document. Listed labels with a probability above 0.1:'
      )
    header = ('split', 'probability', 'predicted labels', 'right')
    yield rows_table([header, *rows])
  if DEV in result.metrics:
    predictions = Predictions.load(result.paths[DEV] / PREDICTIONS)
    yield from _tuned(result, predictions)


def _diagram(
  predictions: Predictions, name: str, calibration: Calibration | None
) -> Reliability | None:
  method = Method.NONE if calibration is None else calibration.method
  shown_NK = judged_probabilities(predictions, name, method, calibration)
  if shown_NK is None:
    return None
  return reliability_of(predictions, shown_NK, _BANDS)


def _verdict(
  name: str, metrics: Mapping[str, Any], diagram: Reliability
) -> Iterator[str]:
  """Yields how far the probabilities of a split can be trusted."""
  n_above, error = int(diagram.counts[1:].sum()), metrics.get(ECE_ABOVE)
  if not n_above:
    yield f'No label of {name} has a probability above {ABOVE}.'
  if error is None:
    return
  verdict = next(text for limit, text in _VERDICTS if error < limit)
  if n_above < _FEW:
    verdict = f'but there are too few such labels to judge: {n_above}'
  yield (
    f'On {name}, the probabilities above {ABOVE} differ from the share of '
    f'right labels by {error:.3f} on average (`{ECE_ABOVE}`), {verdict}. Over '
    f'all listed labels, the difference is {metrics[ECE]:.3f} (`{ECE}`); '
    f'{diagram.counts[0] / diagram.counts.sum():.0%} of them have a '
    f'probability of at most {ABOVE}, which is easy to get right.'
  )


def _band_rows(
  name: str, diagram: Reliability
) -> Iterator[tuple[str, str, str, str]]:
  """Yields a row of a table for each band above ABOVE."""
  bands = zip(_BANDS[1:], _BANDS[2:], diagram.counts[1:], diagram.accuracy[1:])
  for low, high, count, share in bands:
    right = f'{share:.0%}' if count else '-'
    yield name, f'{low:g} to {high:g}', f'{count:,}', right


def _tuned(result: FitResult, predictions: Predictions) -> Iterator[str]:
  metrics = result.metrics[DEV][PROTOCOL][ALL]
  threshold = metrics.get('threshold-tuned')
  value = metrics.get('micro-F1-tuned')
  if threshold is None or value is None:
    return
  space = result.corpus.label_space
  shown = probabilities_at(
    threshold,
    predictions.score_kind,
    result.calibration,
    space.train_counts[: space.n_inside],
  )
  texts = [f'{p:.2f}' if p >= 0.1 else f'{p:.2g}' for p in shown]
  if not texts:
    what = f'a score of at least {threshold:.3f}, which is no probability'
  else:
    what = f'a probability of at least {texts[0]}'
  if len(set(texts)) > 1:
    what += (
      f', or of at least {texts[1]} if they have fewer than {FREQUENT_FROM} '
      'training documents'
    )
  yield (
    f'`--threshold=tuned` assigns labels with {what} (micro-F1 {value:.3f} on '
    'dev).'
  )
