"""How a user asks for labels to be chosen."""

from collections.abc import Sequence
import dataclasses
import enum
import math
from typing import Any

from xjax.core.errors import ConfigError
from xjax.data.propensity import propensity_weights
from xjax.data.schema import LabelSpace
from xjax.judge.criteria import Criteria
from xjax.judge.files.label_costs import read_label_costs
from xjax.select.strategies import (
  BoundedRandom,
  Coverage,
  Standard,
  Strategy,
  Weighted,
)


class Kind(enum.Enum):
  """Strategies, as users name them; see heads.strategies."""

  STANDARD = 'standard'
  PROPENSITY = 'propensity'
  COVERAGE = 'coverage'
  BOUNDED_RANDOM = 'bounded_random'
  COST = 'cost'


@dataclasses.dataclass(frozen=True)
class AskedStrategy:
  """How a user asks for labels to be chosen.

  Attributes:
    kind: the strategy. PROPENSITY: with the run's eval.propensity.
    k: labels of a document.
    beta: of COVERAGE.
    seed: of COVERAGE and BOUNDED_RANDOM.
    costs: of COST: a file of label weights, as read_label_costs.
  """

  kind: Kind
  k: int
  beta: float = 0.0
  seed: int = 0
  costs: str = ''

  def __post_init__(self) -> None:
    """Finds what is wrong before anything is read.

    Raises:
      ConfigError: something is impossible or missing.
    """
    if self.k < 1:
      raise ConfigError(f'--strategy_k={self.k}: must be at least 1')
    if not 0 <= self.beta < math.inf:
      raise ConfigError(f'--beta={self.beta}: a number of at least 0')
    if self.kind is Kind.COST and not self.costs:
      raise ConfigError('--strategy=cost needs --costs=FILE')

  def check_cut_offs(self, ks: Sequence[int]) -> None:
    """Refuses cut-offs that the labels chosen are not enough for.

    Raises:
      ConfigError: there is one.
    """
    if max(ks, default=0) > self.k:
      raise ConfigError(
        f'--ks={max(ks)}: only --strategy_k={self.k} labels are chosen'
      )

  def parameters(self) -> dict[str, Any]:
    """What decides which labels are chosen, by name."""
    found = {'strategy': self.kind.value, 'k': self.k}
    match self.kind:
      case Kind.COVERAGE:
        found |= {'beta': self.beta, 'seed': self.seed}
      case Kind.BOUNDED_RANDOM:
        found |= {'b': BoundedRandom.b, 'seed': self.seed}
      case Kind.COST:
        found |= {'costs': self.costs}
    return found

  def criteria(self, usual: Criteria) -> Criteria:
    """What chosen labels are judged by: cut-offs that they are enough for."""
    ks = [k for k in usual.ks if k <= self.k] or [self.k]
    return dataclasses.replace(usual, ks=tuple(ks))

  def strategy(
    self, space: LabelSpace, propensity: Sequence[float]
  ) -> Strategy:
    """The strategy for the labels of a run.

    Args:
      space: its labels.
      propensity: A and B of the formula.

    Raises:
      DataError: a fault in the file of weights, or too few training documents
        for propensities.
    """
    match self.kind:
      case Kind.STANDARD:
        return Standard()
      case Kind.BOUNDED_RANDOM:
        return BoundedRandom(seed=self.seed)
      case Kind.COVERAGE:
        return Coverage(float(self.beta), self.seed)
      case Kind.PROPENSITY:
        counts = space.train_counts
        return Weighted(propensity_weights(counts, space.n_train, *propensity))
      case Kind.COST:
        return Weighted(read_label_costs(self.costs, space.index))
