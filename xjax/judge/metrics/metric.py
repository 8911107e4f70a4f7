"""Defines the base classes of metrics. Each metric is one class.

A metric per document extends DocumentMetric, a metric per label LabelMetric.
The class says what each document (or label) adds to two sums, the numerator
`over` and the denominator `under`, from which alone the value is computed. So
intervals and significance tests only give other weights to the documents. Every
imported subclass is a metric.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
import dataclasses
import enum
import functools
import itertools
import re
import sys
from typing import Any, ClassVar, Self

from jaxtyping import Bool, Float, Int
import numpy as np
import scipy.sparse

from xjax.core.config_part import import_package
from xjax.core.errors import ConfigError
from xjax.judge.metrics.ranked_lists import RankedLists

# Names of sums over documents: the number of all documents, the number of
# documents with gold, and the number of gold labels.
DOCUMENTS, WITH_GOLD, GOLD = 'documents', 'documents with gold', 'gold'
# Names of label counts. LABELS counts the labels of the slice. GOLD_LABELS
# counts the labels that are gold in some document. UP_TO_LARGEST counts the
# labels up to the largest index of a gold or predicted label.
LABELS, GOLD_LABELS = 'labels', 'labels with gold'
UP_TO_LARGEST = 'labels up to largest'
# Names of two counts: of correct decisions, and of all decisions.
CORRECT, PREDICTED = 'correct', 'predicted'
AT_K = '@k'
# One number, or one number for each replicate.
Numbers = Float[np.ndarray, '...']
Value = Numbers | np.floating


class PSnDCGVariant(enum.Enum):
  """Says how PSnDCG@k comes from PSDCG, the propensity-scored DCG of documents.

  SUMS: the sum of PSDCG, divided by the sum of the largest possible PSDCG.
  MEANS: in both sums, a document's term is first divided by the sum of 1 /
  log2(i + 1) for i <= min(k, g), where g is its number of gold labels. So a
  document with few gold labels gets a larger weight.
  """

  SUMS = 'sums'
  MEANS = 'means'


class PSRDenominator(enum.Enum):
  """Says what PSR@k divides by: with COUNT, it may be above 1."""

  WEIGHT = 'weight'  # the sum of the weights of the document's gold labels
  COUNT = 'count'  # the number of the document's gold labels


class Needs(enum.Enum):
  """Says what a metric needs in addition to lists and gold."""

  NOTHING = 'nothing'
  PROPENSITIES = 'inverse propensities of labels'
  RANK_WEIGHTS = 'weights of labels by place'
  SIMILARITY = 'vectors of labels'
  HIERARCHY = 'parents of labels'


# These metrics are computed only if the user supplies what they need.
USER_SUPPLIED = Needs.RANK_WEIGHTS, Needs.SIMILARITY
# If what these metrics need is absent, tables leave the metrics out.
OPTIONAL = *USER_SUPPLIED, Needs.HIERARCHY


@dataclasses.dataclass(frozen=True)
class Protocol:
  """Holds the conventions by which one tool computes its metrics."""

  name: str  # as in metrics.json
  title: str  # name of the tool, and the version that was read and run
  source: str  # address of the tool's code, or the papers
  # Kinds of metrics that the tool prints, such as 'P@k' or 'micro-F1', besides
  # those with this protocol in Metric.protocols.
  printed: tuple[str, ...] = ()
  # Whether means leave out documents without gold; else they count as 0. A
  # metric that defines `under`, such as PSP, is the same in both cases.
  skip_without_gold: bool = False
  frequent_from: int = 50  # training documents of a frequent label
  # Whether a label whose score is exactly the threshold is assigned.
  assigns_equal: bool = True
  psndcg: PSnDCGVariant = PSnDCGVariant.SUMS  # how PSnDCG@k is computed
  psr: PSRDenominator = PSRDenominator.WEIGHT  # the divisor of PSR@k
  # What means over labels count: LABELS, GOLD_LABELS or UP_TO_LARGEST.
  coverage_over: str = LABELS
  macro_over: str = LABELS  # at a cut-off

  @property
  def kinds(self) -> tuple[str, ...]:
    added = kinds_where(lambda metric: self.name in metric.protocols)
    return tuple(dict.fromkeys((*self.printed, *added)))

  def prints(self, metric: str) -> bool:
    """Returns whether the protocol's tool prints a metric, such as 'P@5'."""
    return metric_kind(metric) in self.kinds

  @property
  def simple_kinds(self) -> tuple[str, ...]:
    """Returns the kinds of metrics that need no extra file and no dev split."""
    from_user = kinds_where(lambda metric: metric.needs in USER_SUPPLIED)
    simple = (kind for kind in self.kinds if kind not in from_user)
    return tuple(kind for kind in simple if not kind.endswith(TUNED))


TUNED = '-tuned'  # suffix of metrics at a threshold that is tuned on dev


@functools.cache  # there are only a few thousand names
def metric_kind(metric: str) -> str:
  """Returns a metric's name without parameter values.

  The kind of 'P@5' is 'P@k', the kind of 'macro-F1@5[1-9]' is 'macro-F1@k[]',
  and the kind of 'coverage[a=0.5]@5' is 'coverage[a]@k'.
  """
  named = re.sub(r'\[(\w+)=[^]]*\]', r'[\1]', metric)
  return re.sub(r'@k\[.*\]', '@k[]', re.sub(r'@\d+', AT_K, named))


def cut_offs(metrics: Iterable[str]) -> tuple[int, ...]:
  """Returns the cut-offs of metrics, such as 5 for 'P@5', ascending."""
  ks = {int(k) for metric in metrics for k in re.findall(r'@(\d+)', metric)}
  return tuple(sorted(ks))


@dataclasses.dataclass(frozen=True)
class MetricSettings:
  """Holds the parameters of label metrics."""

  alphas: tuple[float, ...] = (0.5,)  # of AlphaCoverage
  draws: tuple[int, ...] = (1000,)  # of SampledCoverage


@dataclasses.dataclass(frozen=True)
class Metric:
  """Is the base class of all metrics."""

  # Its kind, such as `RP@k`, or `R-Precision` without cut-off; '' for base
  # classes.
  name: ClassVar[str] = ''
  # Names of protocols that print it, besides Protocol.printed.
  protocols: ClassVar[tuple[str, ...]] = ('xjax',)
  needs: ClassVar[Needs] = Needs.NOTHING
  # The convention that protocols must have, if classes of a name differ in it.
  follows: ClassVar[PSnDCGVariant | PSRDenominator | None] = None
  # Whether the largest value is 1, which limits intervals.
  is_share: ClassVar[bool] = True
  # Computes the terms of the denominator. If `under` is None, the denominator
  # is the number of documents (or labels).
  under: ClassVar[Callable[..., Any] | None] = None

  def __init_subclass__(cls, **others: Any) -> None:
    super().__init_subclass__(**others)
    fault = ''
    if not cls.name and 'over' in vars(cls):
      fault = "has no name; set it in the class, such as name = 'MRR@k'"
    elif number := re.search(r'@\d+', cls.name):
      right = cls.name.replace(number[0], AT_K)
      fault = (
        f'is called {cls.name!r}; write @k in place of the number: {right}'
      )
    if fault:
      cls.name = ''  # the class stays a subclass for some time
      raise TypeError(f'the metric {cls.__qualname__} {fault}')

  @property
  def label(self) -> str:
    """Returns the name with the parameters, such as `coverage[a=0.5]@k`."""
    return self.name

  @classmethod
  def variants(cls, settings: MetricSettings) -> tuple[Self, ...]:
    """Returns a metric of this class for each value of its parameters."""
    return (cls(),)

  @classmethod
  def kinds(cls) -> tuple[str, ...]:
    """Returns the kinds of metrics that this class prints."""
    return (cls.name,)

  @classmethod
  def has_cut_off(cls) -> bool:
    return AT_K in cls.name

  def over(self, inputs: Any) -> Any:
    """Computes the metric's numerator terms, per document or per label."""
    raise NotImplementedError(f'{type(self).__name__}.over')

  def value(self, over: Numbers, under: Numbers, k: int) -> Value:
    """Computes the metric's value from its two sums, float64.

    The sums are numbers, or have one entry per replicate. `under` has NaN in
    place of 0. `k` is 0 for a metric without a cut-off.
    """
    return over / under

  def sums(self) -> dict[str, Callable[[Any], Any]]:
    """Returns the functions that compute the terms of the sums, by name."""
    functions = {self.sum_of('over'): self.over}
    if type(self).under is not None:
      functions[self.sum_of('under')] = self.under
    return functions

  def sum_of(self, part: str) -> str:
    """Returns the name of the sum of a method, 'over' or 'under'."""
    # The text of self has its parameters, so each variant has its own sums.
    return f'{type(self).__module__}.{self}.{part}'


class DocumentMetric(Metric):
  """Is the base class of metrics whose sums are over documents.

  Documents without gold add 0. `over(lists)` and `under(lists)` return float
  [B, J], with a column for each cut-off of `lists.ks`, or float [B] for a
  metric without a cut-off. Without `under`, the value is the mean over
  documents.
  """

  least_k: ClassVar[int] = 1  # the smallest cut-off at which it is defined

  def from_lists(
    self,
    ids_NK: Int[np.ndarray, 'N K'],
    ks: tuple[int, ...],
    vectors_LD: scipy.sparse.csr_array,
  ) -> Float[np.ndarray, 'N J']:
    """Computes the values that `over` reads from lists.outside[self.name].

    It is called once, on the host, only for metrics that need SIMILARITY.
    """
    raise NotImplementedError(f'{type(self).__name__}.from_lists')

  def known(
    self, lists: RankedLists
  ) -> Bool[np.ndarray, ' B'] | Bool[np.ndarray, 'B J']:
    """Returns whether each list is long enough, in the shape of `over`."""
    return lists.known_BJ if self.has_cut_off() else lists.complete_B

  def terms(
    self, lists: RankedLists
  ) -> dict[str, tuple[Float[np.ndarray, ' B'], Bool[np.ndarray, ' B']]]:
    """Returns what documents add to the sums, and whether it is known."""
    ends = [f'@{k}' for k in lists.ks] if self.has_cut_off() else ['']
    shape, terms = (len(lists.ids_BK), len(ends)), {}
    known_BJ = self.known(lists).reshape(shape)
    for name, function in self.sums().items():
      with np.errstate(divide='ignore', over='ignore', invalid='ignore'):
        values = function(lists)
      if values.shape not in (shape, shape[: 1 + (len(ends) > 1)]):
        raise ValueError(
          f'{function.__qualname__} returned an array of shape {values.shape}; '
          f'expected [B, J]={[*shape]}: a row per document and, for a metric '
          'with @k, a column per cut-off'
        )
      has_gold_B1 = lists.gold_B[:, None] > 0
      values_BJ = np.where(has_gold_B1, values.reshape(shape), 0.0)
      for j, end in enumerate(ends):
        terms[f'{name}{end}'] = values_BJ[:, j], known_BJ[:, j]
    return terms

  def measures(
    self, protocol: Protocol, points: 'MetricPoints'
  ) -> Iterator['Measure']:
    documents = WITH_GOLD if protocol.skip_without_gold else DOCUMENTS
    for k in points.ks if self.has_cut_off() else (0,):
      end = f'@{k}' if k else ''
      is_mean = type(self).under is None
      below = documents if is_mean else f'{self.sum_of("under")}{end}'
      over = f'{self.sum_of("over")}{end}'
      if not k or k >= self.least_k:
        name = self.label.replace(AT_K, end)
        yield Measure(name, self, over, (below,), k)


@dataclasses.dataclass(frozen=True, eq=False)
class LabelCounts:
  """Holds each label's counts of documents, [L] or, in R replicates, [L, R]."""

  correct_L: Float[np.ndarray, 'L ...']  # the label is predicted and gold
  predicted_L: Float[np.ndarray, 'L ...']
  gold_L: Float[np.ndarray, 'L ...']
  n_docs: int  # all documents


class LabelMetric(Metric):
  """Is the base class of metrics whose sums are over labels.

  `over(labels)` and `under(labels)` return floats in the shape of LabelCounts's
  arrays. A label's term depends only on its counts and the number of
  all documents, and is 0 for a label that is neither predicted nor gold.
  Without `under`, the value is the mean over labels.

  For a metric with a cut-off, the first k labels of every list are predicted,
  otherwise all labels with at least the score of a threshold.
  """

  is_binned: ClassVar[bool] = False  # also printed for frequency bins
  # Whether a label without a correct decision adds 0; then replicates count
  # only the others, which is much faster.
  only_correct: ClassVar[bool] = False
  # Whether the sums are known if wrong labels are missing from the lists.
  ignores_wrong: ClassVar[bool] = False

  @classmethod
  def kinds(cls) -> tuple[str, ...]:
    if not cls.has_cut_off():
      return cls.name, f'{cls.name}{TUNED}'
    return (cls.name, f'{cls.name}[]') if cls.is_binned else (cls.name,)

  def averaged_labels(self, protocol: Protocol) -> str:
    """Returns the name of the number of labels that a mean is over."""
    return LABELS

  def under_names(self, protocol: Protocol, end: str) -> tuple[str, ...]:
    """Returns the names of the sums that add up to the denominator."""
    if type(self).under is not None:
      return (f'{self.sum_of("under")}{end}',)
    labels = self.averaged_labels(protocol)
    return (f'{labels}{end}' if labels == UP_TO_LARGEST else labels,)

  def over_name(self, end: str) -> str:
    return f'{self.sum_of("over")}{end}'

  def measures(
    self, protocol: Protocol, points: 'MetricPoints'
  ) -> Iterator['Measure']:
    """Yields a measure per threshold, or per cut-off, and then per bin."""
    if not self.has_cut_off():
      for end in points.thresholds:
        under = self.under_names(protocol, end)
        yield Measure(f'{self.label}{end}', self, self.over_name(end), under, 0)
      return
    by_k = [(k, f'@{k}', self.label.replace(AT_K, f'@{k}')) for k in points.ks]
    for k, end, name in by_k:
      under = self.under_names(protocol, end)
      yield Measure(name, self, self.over_name(end), under, k)
    for k, end, name in by_k if self.is_binned else ():
      for bin_ in points.bins:
        over, under = f'{self.over_name(end)}[{bin_}]', f'{LABELS}[{bin_}]'
        yield Measure(f'{name}[{bin_}]', self, over, (under,), k)


@dataclasses.dataclass(frozen=True)
class MetricPoints:
  """Holds the cut-offs, thresholds and bins at which metrics are computed."""

  ks: tuple[int, ...]
  thresholds: tuple[str, ...] = ()  # suffixes: '' or '-tuned'
  bins: tuple[str, ...] = ()  # names of the frequency bins
  levels: tuple[int, ...] = ()  # of the hierarchy, that have labels


@dataclasses.dataclass(frozen=True)
class Measure:
  """Computes a metric at one cut-off or threshold from named sums."""

  name: str  # such as `P@5`
  metric: Metric
  over: str  # name of the sum that is the numerator
  under: tuple[str, ...]  # the sums that add up to the denominator
  k: int  # 0 for a metric without a cut-off

  @property
  def sums(self) -> tuple[str, ...]:
    return self.over, *self.under

  def value(self, sums: Mapping[str, Any]) -> Numbers:
    """Computes the metric's value, which is NaN where the denominator is 0."""
    under = np.asarray(sum(sums[name] for name in self.under), np.float64)
    over = np.asarray(sums[self.over], np.float64)
    below = np.where(under > 0, under, np.nan)
    return np.asarray(self.metric.value(over, below, self.k))


def metric_classes() -> tuple[type[Metric], ...]:
  """Returns the classes of all imported metrics; those of xjax come first."""
  _import_own_metrics()
  # Once, even if a class is reached through several bases.
  named = dict.fromkeys(cls for cls in _subclasses(Metric) if cls.name)
  return tuple(sorted(named, key=_is_from_user))


@functools.cache
def _import_own_metrics() -> None:
  import_package(sys.modules[__package__])


def _is_from_user(metric: type[Metric]) -> bool:
  return not metric.__module__.startswith('xjax.')


def _subclasses(cls: type[Metric]) -> Iterator[type[Metric]]:
  for subclass in cls.__subclasses__():
    yield subclass
    yield from _subclasses(subclass)


def kinds_where(condition: Callable[[type[Metric]], bool]) -> tuple[str, ...]:
  """Returns the kinds of the metrics that satisfy the condition."""
  kinds = (cls.kinds() for cls in metric_classes() if condition(cls))
  return tuple(dict.fromkeys(itertools.chain.from_iterable(kinds)))


def uses_propensities(metric: str) -> bool:
  """Returns whether a metric, such as 'PSP@5', depends on propensities."""
  weighed = kinds_where(lambda metric: metric.needs is Needs.PROPENSITIES)
  return metric_kind(metric) in weighed


def users_kinds() -> tuple[str, ...]:
  """Returns the kinds of metrics that are defined outside xjax."""
  return kinds_where(_is_from_user)


@functools.lru_cache(maxsize=128)  # every slice needs the same few tables
def measures(
  classes: Sequence[type[Metric]],
  protocol: Protocol,
  points: MetricPoints,
  settings: MetricSettings,
) -> Mapping[str, Measure]:
  """Returns the metrics that a protocol prints, by full name such as `P@5`."""
  table: dict[str, Measure] = {}
  kinds = set(protocol.kinds)
  followed = None, protocol.psndcg, protocol.psr
  classes = [cls for cls in classes if cls.follows in followed]
  for metric in (each for cls in classes for each in cls.variants(settings)):
    for measure in metric.measures(protocol, points):
      if metric_kind(measure.name) not in kinds:
        continue
      # A metric can occur twice, for example if a cut-off is repeated.
      twin = table.get(measure.name, measure).metric
      if type(twin) is not type(metric):
        both = type(twin), type(metric)
        names = ' and '.join(f'{c.__module__}.{c.__qualname__}' for c in both)
        raise ConfigError(f'two metrics are called {measure.name}: {names}')
      table[measure.name] = measure
  return table
