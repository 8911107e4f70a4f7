"""Metrics as functions of sums over documents and over labels.

Reweighing the documents changes the sums and nothing else, so confidence
intervals and significance tests need no metric of their own; and a protocol of
another tool is another table of the same measures.
"""

from collections.abc import Mapping, Sequence
import dataclasses
import functools
import types
from typing import Any

import numpy as np

from xjax.judge.metrics.label_sums import (
  BETAS,
  GOLD,
  GOLD_LABELS,
  LABELS,
  UP_TO_LARGEST,
  LabelForm,
)
from xjax.judge.metrics.protocols import (
  Protocol,
  Ratio,
  Recalled,
  Universe,
  kind_of,
)
from xjax.judge.metrics.sums import DOCUMENTS, WITH_GOLD


@dataclasses.dataclass(frozen=True)
class Measure:
  """A sum over the total of others.

  Attributes:
    over: name of the sum above the line.
    under: names of those below it, which are added.
    scale: of what is above.
    per: of what is below, as k for P@k.
  """

  over: str
  under: tuple[str, ...]
  scale: float = 1.0
  per: float | int = 1

  @property
  def sums(self) -> tuple[str, ...]:
    """All sums it depends on."""
    return self.over, *self.under

  def value(self, sums: Mapping[str, Any]) -> np.ndarray:
    """float64 of the shape of the sums; NaN where nothing is below the line."""
    over, under = self._parts(sums)
    return np.asarray(self.scale * over / (self.per * under))

  def _parts(self, sums: Mapping[str, Any]) -> tuple[np.ndarray, np.ndarray]:
    under = np.asarray(sum(sums[name] for name in self.under), np.float64)
    over = np.asarray(sums[self.over], np.float64)
    return over, np.where(under > 0, under, np.nan)


@dataclasses.dataclass(frozen=True)
class Entropy(Measure):
  """log2 C - (sum of c log2 c) / C; Schultheis et al. 2022, eq. 15-16."""

  def value(self, sums: Mapping[str, Any]) -> np.ndarray:
    """float64, in bits; 0 where nothing is correct."""
    over, under = self._parts(sums)
    # Rounding may leave less than nothing of one label's entropy.
    bits = np.maximum(np.log2(under) - over / under, 0.0)
    return np.asarray(np.nan_to_num(bits, nan=0.0))


def ideal(k: int) -> float:
  """The discounted gain of k hits among the first k."""
  return float((1 / np.log2(np.arange(2, k + 2))).sum())


def document_measures(ks: Sequence[int], documents: str) -> dict[str, Measure]:
  """Metrics in which every document counts the same.

  Args:
    ks: cut-offs.
    documents: the sum that a mean is over.
  """
  table = {f'P@{k}': Measure(f'hits@{k}', (documents,), per=k) for k in ks}
  for metric in ('R', 'RP', 'nDCG'):
    table |= {f'{metric}@{k}': _mean(f'{metric}@{k}', documents) for k in ks}
  table['R-Precision'] = _mean('R-Precision', documents)
  table |= {f'Hit@{k}': _mean(f'hit@{k}', documents) for k in ks}
  table |= {
    f'nDCG-full@{k}': Measure(f'DCG@{k}', (documents,), per=ideal(k))
    for k in ks
  }
  return table


def _mean(term: str, documents: str) -> Measure:
  return Measure(term, (documents,))


def propensity_measures(
  ks: Sequence[int], documents: str, protocol: Protocol
) -> dict[str, Measure]:
  """Metrics in which labels count their inverse propensities."""
  dcg = {Ratio.SUMS: 'DCG', Ratio.MEANS: 'nDCG'}[protocol.psndcg]
  psr, best = {
    Recalled.WEIGHT: ('PSR', 'PSR-best'),
    Recalled.COUNT: ('w-R', 'w-best-R'),
  }[protocol.psr]
  table = {}
  for k in ks:
    table |= {
      f'PSP@{k}': Measure(f'w-hits@{k}', (f'w-best@{k}',)),
      f'PSP-raw@{k}': Measure(f'w-hits@{k}', (documents,), per=k),
      f'PSnDCG@{k}': Measure(f'w-{dcg}@{k}', (f'w-best-{dcg}@{k}',)),
      f'PSnDCG-full@{k}': Measure(f'w-DCG@{k}', (documents,), per=ideal(k)),
      f'PSR@{k}': _mean(f'{psr}@{k}', documents),
      f'PSR-norm@{k}': Measure(f'{psr}@{k}', (f'{best}@{k}',)),
    }
  return table


def f1_measures(decisions: str, labels: str) -> dict[str, Measure]:
  """Micro- and macro-F1 of a set of decisions.

  Args:
    decisions: what ends the names of its sums, as `@5`.
    labels: the sum that macro-F1 is the mean over.
  """
  both = f'predicted{decisions}', GOLD
  return {
    f'micro-F1{decisions}': Measure(f'correct{decisions}', both, 2.0),
    f'macro-F1{decisions}': Measure(f'F1{decisions}', (labels,)),
  }


def label_measures(
  k: int, form: LabelForm, bins: Sequence[str], protocol: Protocol
) -> dict[str, Measure]:
  """Metrics in which labels count the same, of the first k of every list."""
  macro_over = _universe(protocol.macro_over, k)
  table = {
    f'macro-F1@{k}[{bin_}]': Measure(f'F1@{k}[{bin_}]', (f'{LABELS}[{bin_}]',))
    for bin_ in bins
  }
  betas = tuple(f'F{beta:g}' for beta in BETAS)
  for kind, each in (('P', 'label-P'), ('R', 'label-R'), *zip(betas, betas)):
    table[f'macro-{kind}@{k}'] = Measure(f'{each}@{k}', (macro_over,))
  covered_over = _universe(protocol.coverage_over, k)
  table[f'coverage@{k}'] = Measure(f'covered@{k}', (covered_over,))
  which = [f'[a={alpha:g}]' for alpha in form.alphas]
  which += [f'[n={n}]' for n in form.draws]
  for one in which:
    table[f'coverage{one}@{k}'] = Measure(f'covered{one}@{k}', (LABELS,))
  table[f'entropy@{k}'] = Entropy(f'correct-log@{k}', (f'correct@{k}',))
  return table


def _universe(universe: Universe, k: int) -> str:
  """The sum that counts the labels of a universe."""
  match universe:
    case Universe.ALL:
      return LABELS
    case Universe.GOLD:
      return GOLD_LABELS
    case Universe.UP_TO_LARGEST:
      return f'{UP_TO_LARGEST}@{k}'


@functools.lru_cache(maxsize=128)  # every slice asks for the same few
def measures(
  protocol: Protocol,
  ks: tuple[int, ...],
  thresholds: tuple[str, ...],
  bins: tuple[str, ...],
  form: LabelForm,
) -> Mapping[str, Measure]:
  """The metrics that a protocol prints, by name, in the order of a table.

  Args:
    protocol: whose conventions.
    ks: cut-offs.
    thresholds: what ends the names of F1 at thresholds: '' or '-tuned'.
    bins: names of the frequency bins of macro-F1.
    form: which label metrics there are beside F1.
  """
  documents = WITH_GOLD if protocol.skip_without_gold else DOCUMENTS
  table = document_measures(ks, documents)
  for name in thresholds:
    table |= f1_measures(name, LABELS)
    table[f'weighted-F1{name}'] = Measure(f'gold-F1{name}', (GOLD,))
  table |= propensity_measures(ks, documents, protocol)
  for k in ks:
    table |= f1_measures(f'@{k}', _universe(protocol.macro_over, k))
    table |= label_measures(k, form, bins, protocol)
    if k > 1:  # one label has nobody to differ from
      table[f'ILD@{k}'] = _mean(f'ILD@{k}', documents)
    table[f'weighted@{k}'] = _mean(f'weighted@{k}', documents)
  kinds = list(
    dict.fromkeys(map(kind_of, table))
  )  # all cut-offs of one together
  order = sorted(table, key=lambda name: kinds.index(kind_of(name)))
  printed = {name: table[name] for name in order if protocol.prints(name)}
  return types.MappingProxyType(printed)
