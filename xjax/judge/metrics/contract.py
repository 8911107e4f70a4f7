"""What a metric is: one class, whose sums make its value.

A metric of documents extends DocumentMetric, one of labels LabelMetric. It says
what each document, or each label, adds to a sum above and a sum below a line;
its value is a function of these sums alone. Reweighing the documents changes
the sums and nothing else, so confidence intervals and significance tests need
no code of a metric's own. Metrics are found among the subclasses that are
imported: there is no table of them.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
import dataclasses
import enum
import functools
import re
import sys
from typing import Any, ClassVar, Self

from flax import struct
import jax
from jaxtyping import Array, Bool, Float
import numpy as np

from xjax.core.config_part import import_modules
from xjax.core.errors import ConfigError
from xjax.judge.metrics.ranking import RankedLists

# Sums of documents: all of them, those with gold, and their gold labels.
DOCUMENTS, WITH_GOLD, GOLD = 'documents', 'documents with gold', 'gold'
# Numbers of labels: of the slice, of those that are gold, and, of a set of
# decisions, up to the largest that is gold or predicted.
LABELS, GOLD_LABELS = 'labels', 'labels with gold'
UP_TO_LARGEST = 'labels up to largest'
# Of a set of decisions: those that are right, and all.
CORRECT, PREDICTED = 'correct', 'predicted'
AT_K = '@k'
Value = np.ndarray | np.floating  # one number, or one of each replicate


class Ratio(enum.Enum):
  """How PSnDCG@k becomes a ratio over the N documents.

  SUMS: sum_d PSDCG_d / sum_d (the largest possible PSDCG_d).
  MEANS: both sides first divide every document by its ideal DCG, the sum of
    1 / log2(i + 1) for i <= min(k, g): documents with few gold labels weigh
    more.
  """

  SUMS = 'sums'
  MEANS = 'means'


class Recalled(enum.Enum):
  """What PSR@k divides a document's propensity-scored hits by.

  WEIGHT: the weights of its gold labels: 1 where all are found.
  COUNT: the number of its gold labels, so that it may be above 1.
  """

  WEIGHT = 'weight'
  COUNT = 'count'


class AveragedLabels(enum.Enum):
  """The labels that a mean over labels is over.

  ALL: every label there is.
  GOLD: those that are gold in a judged document.
  UP_TO_LARGEST: 0 up to the largest index that is gold in a judged document or
    among the first k of its list.
  """

  ALL = 'all'
  GOLD = 'gold'
  UP_TO_LARGEST = 'up to largest'


class Needs(enum.Enum):
  """What a metric takes beside lists and gold."""

  NOTHING = 'nothing'
  PROPENSITIES = 'inverse propensities of labels'
  RANK_WEIGHTS = 'weights of labels by place'
  SIMILARITY = 'vectors of labels'


# Given by a user alone, where they are asked for.
OF_A_USER = Needs.RANK_WEIGHTS, Needs.SIMILARITY


@dataclasses.dataclass(frozen=True)
class Protocol:
  """The conventions of one tool.

  Attributes:
    name: as in metrics.json.
    title: the tool and the version that was read and run.
    source: where its code is.
    ties: how it orders equal scores.
    printed: metrics that it prints, with k for the cut-off: 'P@k', 'micro-F1';
      those whose class names the protocol come after them.
    skip_without_gold: whether documents without gold are left out of means
      over documents; else they count as 0. A ratio of sums or means, such as
      PSP, is the same either way.
    frequent_from: training documents from which a label is frequent; those
      with fewer, but any, are few.
    psndcg: see Ratio.
    psr: see Recalled.
    coverage_over: labels that coverage@k is a share of.
    macro_over: labels that macro-averages at k are means over.
  """

  name: str
  title: str
  source: str
  ties: str
  printed: tuple[str, ...] = ()
  skip_without_gold: bool = False
  frequent_from: int = 50
  psndcg: Ratio = Ratio.SUMS
  psr: Recalled = Recalled.WEIGHT
  coverage_over: AveragedLabels = AveragedLabels.ALL
  macro_over: AveragedLabels = AveragedLabels.ALL

  @property
  def kinds(self) -> tuple[str, ...]:
    """The metrics that it prints."""
    own = kinds_where(lambda metric: self.name in metric.protocols)
    return tuple(dict.fromkeys((*self.printed, *own)))

  def prints(self, metric: str) -> bool:
    """Whether the tool prints this metric, such as 'P@5'."""
    return kind_of(metric) in self.kinds

  @property
  def simple_kinds(self) -> tuple[str, ...]:
    """Those that predictions alone tell: no file of a user, no other split."""
    needy = kinds_where(lambda metric: metric.needs in OF_A_USER)
    every = (kind for kind in self.kinds if kind not in needy)
    return tuple(kind for kind in every if not kind.endswith(TUNED))


TUNED = '-tuned'  # ends the names of metrics at a threshold tuned on dev


@functools.cache  # of the few thousand names there are
def kind_of(metric: str) -> str:
  """The kind of a metric: 'P@5' is a 'P@k', 'macro-F1@5[1-9]' 'macro-F1@k[]'.

  Values in brackets (a bin, a threshold on recall) go, names stay:
  'coverage[a=0.5]@5' is a 'coverage[a]@k'.
  """
  named = re.sub(r'\[(\w+)=[^]]*\]', r'[\1]', metric)
  return re.sub(r'@k\[.*\]', '@k[]', re.sub(r'@\d+', AT_K, named))


@dataclasses.dataclass(frozen=True)
class LabelForm:
  """The parameters of metrics of labels.

  Attributes:
    alphas: recalls from which a label counts as covered, in [0, 1].
    draws: numbers of documents that coverage is expected on.
  """

  alphas: tuple[float, ...] = (0.5,)
  draws: tuple[int, ...] = (1000,)


@dataclasses.dataclass(frozen=True)
class Metric:
  """What metrics of documents and of labels have in common.

  Attributes:
    name: its kind, `RP@k` with a cut-off, else as `R-Precision`; '': the class
      is no metric itself.
    protocols: that print it, beside those whose `printed` names it.
    needs: what it takes beside lists and gold.
    is_share: whether it has an end at 1 (or where its replicates have theirs).
  """

  name: ClassVar[str] = ''
  protocols: ClassVar[tuple[str, ...]] = ('xjax',)
  needs: ClassVar[Needs] = Needs.NOTHING
  is_share: ClassVar[bool] = True
  # What is summed below the line; None: documents, or labels, are counted.
  under: ClassVar[Callable[..., Any] | None] = None

  @property
  def label(self) -> str:
    """Its name with the values of its fields, as `coverage[a=0.5]@k`."""
    return self.name

  @classmethod
  def each(cls, form: LabelForm) -> tuple[Self, ...]:
    """One metric for each value of its parameters."""
    return (cls(),)

  @classmethod
  def kinds(cls) -> tuple[str, ...]:
    """The kinds of what it prints."""
    return (cls.name,)

  @classmethod
  def has_cut_off(cls) -> bool:
    """Whether it is of the first k labels of every list."""
    return AT_K in cls.name

  def applies(self, protocol: Protocol) -> bool:
    """Whether it is the metric of its name by this protocol's conventions."""
    return True

  def over(self, given: Any) -> Any:
    """What is summed above the line."""
    raise NotImplementedError(f'{type(self).__name__}.over')

  def value(self, over: np.ndarray, under: np.ndarray, k: int) -> Value:
    """The value from its sums, which have the shape of the replicates.

    Args:
      over: float64, the sum above the line.
      under: float64, that below it; NaN where it is 0.
      k: the cut-off; 0 without one.
    """
    return over / under

  def sums(self) -> dict[str, Callable[[Any], Any]]:
    """Its own sums by name."""
    found = {self.sum_of('over'): self.over}
    if type(self).under is not None:
      found[self.sum_of('under')] = self.under
    return found

  def sum_of(self, part: str) -> str:
    """The name of the sum of `over` or `under`.

    Classes whose body says `over = Other.over` share the sum with Other, and
    its name; what is inherited may depend on the heir and is a sum of its own.
    """
    owner = type(self)
    shared = vars(owner).get(part)
    name = shared.__qualname__ if shared else f'{owner.__qualname__}.{part}'
    module = (shared or owner).__module__
    prefix = '' if module.startswith('xjax.') else f'{module}.'
    fields = dataclasses.asdict(self).items()
    values = ''.join(f'[{field}={value}]' for field, value in fields)
    return f'{prefix}{name}{values}'


class DocumentMetric(Metric):
  """A metric whose sums are over documents, those without gold add 0.

  `over(lists)` is float [B, J], a column per cut-off of `lists.ks`, or [B]
  without a cut-off; so is `under(lists)`, where there is one. Without, the
  value is the mean over documents.

  Attributes:
    least_k: the smallest cut-off it is told at.
  """

  least_k: ClassVar[int] = 1

  def from_lists(
    self, ids_NK: np.ndarray, ks: tuple[int, ...], vectors_LD: Any
  ) -> np.ndarray:
    """Values float64 [N, J] that `over` finds in lists.outside[self.name].

    Asked of metrics that need SIMILARITY, once, on the host.
    """
    raise NotImplementedError(f'{type(self).__name__}.from_lists')

  def known(self, lists: RankedLists) -> Bool[Array, ' B'] | Bool[Array, 'B J']:
    """Whether the lists are deep enough; as `over` is."""
    return lists.known_BJ if self.has_cut_off() else lists.complete_B

  def measures(self, protocol: Protocol, at: 'At') -> Iterator['Measure']:
    """Yields it at every cut-off."""
    documents = WITH_GOLD if protocol.skip_without_gold else DOCUMENTS
    for k in at.ks if self.has_cut_off() else (0,):
      end = f'@{k}' if k else ''
      is_mean = type(self).under is None
      below = documents if is_mean else f'{self.sum_of("under")}{end}'
      over = f'{self.sum_of("over")}{end}'
      if not k or k >= self.least_k:
        name = self.label.replace(AT_K, end)
        yield Measure(name, self, over, (below,), k)


@struct.dataclass
class PerLabel:
  """What a set of decisions says of each label; leading axes are replicates.

  Attributes:
    correct_L: float64, documents for which it is predicted and gold.
    predicted_L: float64, documents it is predicted for.
    gold_L: float64, documents that have it.
    n_docs: float64, all documents.
  """

  correct_L: Float[Array, '*R L']
  predicted_L: Float[Array, '*R L']
  gold_L: Float[Array, '*R L']
  n_docs: jax.Array


class LabelMetric(Metric):
  """A metric whose sums are over labels.

  `over(labels)` is float [*R, L] as PerLabel is, each label's from its own
  numbers; 0 for a label that is neither predicted nor gold. So is `under`,
  where there is one. Without, the value is the mean over labels. With a
  cut-off the first k labels of every list are predicted, else those above a
  threshold.

  Attributes:
    is_binned: whether it is told of each frequency bin of labels as well.
    only_correct: whether its sums are 0 for a label without a correct decision:
      then replicates need not count the others, which is much faster.
    ignores_wrong: whether its sums depend on what is correct and what is gold
      alone, so that lists tell it that miss wrong labels.
  """

  is_binned: ClassVar[bool] = False
  only_correct: ClassVar[bool] = False
  ignores_wrong: ClassVar[bool] = False

  @classmethod
  def kinds(cls) -> tuple[str, ...]:
    if not cls.has_cut_off():
      return cls.name, f'{cls.name}{TUNED}'
    return (cls.name, f'{cls.name}[]') if cls.is_binned else (cls.name,)

  def averaged_labels(self, protocol: Protocol) -> AveragedLabels:
    """The labels that the first k labels' mean is over."""
    return AveragedLabels.ALL

  def below(self, protocol: Protocol, end: str, k: int) -> tuple[str, ...]:
    """The sums below the line, which are added up."""
    if type(self).under is not None:
      return (f'{self.sum_of("under")}{end}',)
    averaged_labels = (
      self.averaged_labels(protocol) if k else AveragedLabels.ALL
    )
    return (
      {
        AveragedLabels.ALL: LABELS,
        AveragedLabels.GOLD: GOLD_LABELS,
        AveragedLabels.UP_TO_LARGEST: f'{UP_TO_LARGEST}{end}',
      }[averaged_labels],
    )

  def above(self, end: str) -> str:
    """The sum above the line."""
    return f'{self.sum_of("over")}{end}'

  def measures(self, protocol: Protocol, at: 'At') -> Iterator['Measure']:
    """Yields it for every set of decisions, and for bins."""
    if not self.has_cut_off():
      for end in at.thresholds:
        under = self.below(protocol, end, 0)
        yield Measure(f'{self.label}{end}', self, self.above(end), under, 0)
      return
    for k in at.ks:
      end = f'@{k}'
      name, over = self.label.replace(AT_K, end), self.above(end)
      yield Measure(name, self, over, self.below(protocol, end, k), k)
    for k in at.ks if self.is_binned else ():
      name, over = self.label.replace(AT_K, f'@{k}'), self.above(f'@{k}')
      for bin_ in at.bins:
        under = f'{LABELS}[{bin_}]'
        yield Measure(f'{name}[{bin_}]', self, f'{over}[{bin_}]', (under,), k)


@dataclasses.dataclass(frozen=True)
class At:
  """What metrics are told at.

  Attributes:
    ks: cut-offs.
    thresholds: what ends the names of metrics at thresholds: '' or '-tuned'.
    bins: names of the frequency bins of labels.
  """

  ks: tuple[int, ...]
  thresholds: tuple[str, ...] = ()
  bins: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class Measure:
  """A metric at a cut-off, or of a set of decisions: a function of sums.

  Attributes:
    name: as `P@5`.
    metric: whose value it is.
    over: name of the sum above the line.
    under: names of those below it, which are added.
    k: the cut-off; 0 without one.
  """

  name: str
  metric: Metric
  over: str
  under: tuple[str, ...]
  k: int

  @property
  def sums(self) -> tuple[str, ...]:
    """All sums it depends on."""
    return self.over, *self.under

  def value(self, sums: Mapping[str, Any]) -> np.ndarray:
    """float64 of the shape of the sums; NaN where nothing is below the line."""
    under = np.asarray(sum(sums[name] for name in self.under), np.float64)
    over = np.asarray(sums[self.over], np.float64)
    below = np.where(under > 0, under, np.nan)
    return np.asarray(self.metric.value(over, below, self.k))


def metrics() -> tuple[type[Metric], ...]:
  """The metrics of all modules that are imported, a user's after ours."""
  _import_ours()
  found = dict.fromkeys(cls for cls in _heirs(Metric) if cls.name)
  return tuple(sorted(found, key=_is_users))


@functools.cache
def _import_ours() -> None:
  """Imports this folder: a metric is found wherever it stands in it."""
  import_modules(sys.modules[__package__])


def _is_users(metric: type[Metric]) -> bool:
  return not metric.__module__.startswith('xjax.')


def _heirs(cls: type[Metric]) -> Iterator[type[Metric]]:
  for each in cls.__subclasses__():
    yield each
    yield from _heirs(each)


def kinds_where(chosen: Callable[[type[Metric]], bool]) -> tuple[str, ...]:
  """The kinds of the metrics of which this is true."""
  found = (metric.kinds() for metric in metrics() if chosen(metric))
  return tuple(dict.fromkeys(kind for kinds in found for kind in kinds))


def weighed_kinds() -> tuple[str, ...]:
  """The kinds of metrics that depend on propensities."""
  return kinds_where(lambda metric: metric.needs is Needs.PROPENSITIES)


def is_weighed(metric: str) -> bool:
  """Whether a metric, such as 'PSP@5', depends on propensities."""
  return kind_of(metric) in weighed_kinds()


def users_kinds() -> tuple[str, ...]:
  """The kinds of metrics that are not of this library."""
  return kinds_where(_is_users)


def measures(
  protocol: Protocol, at: At, form: LabelForm = LabelForm()
) -> Mapping[str, Measure]:
  """The metrics that a protocol prints, by name, in the order of a table.

  Args:
    protocol: whose conventions.
    at: cut-offs, thresholds and bins.
    form: the parameters of metrics of labels.

  Raises:
    ConfigError: two metrics have one name.
  """
  return _measures(metrics(), protocol, at, form)


@functools.lru_cache(maxsize=128)  # every slice asks for the same few
def _measures(
  classes: Sequence[type[Metric]],
  protocol: Protocol,
  at: At,
  form: LabelForm,
) -> Mapping[str, Measure]:
  found: dict[str, Measure] = {}
  kinds = set(protocol.kinds)
  every = (metric for cls in classes for metric in cls.each(form))
  for metric in filter(lambda metric: metric.applies(protocol), every):
    for measure in metric.measures(protocol, at):
      if kind_of(measure.name) not in kinds:
        continue
      # A cut-off, say, may be asked for twice.
      twin = found.get(measure.name, measure).metric
      if type(twin) is not type(metric):
        both = type(twin), type(metric)
        names = ' and '.join(f'{c.__module__}.{c.__qualname__}' for c in both)
        raise ConfigError(f'two metrics are called {measure.name}: {names}')
      found[measure.name] = measure
  return found
