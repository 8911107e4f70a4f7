"""Defines how a run is judged."""

from collections.abc import Iterator
import dataclasses
import typing
from typing import Any

from xjax.core.config_part import AT_LEAST_1, SHARE, ConfigPart, field
from xjax.core.types import MOST_RANKS
from xjax.data.schema import PROPENSITY
from xjax.judge.calibration import Method

if typing.TYPE_CHECKING:
  from xjax.judge.criteria import Criteria


@dataclasses.dataclass
class EvalConfig(ConfigPart):
  """Configures how a model is judged, that is, how metrics are computed."""

  batch_size: int = field(
    64,
    'Documents per batch, over all devices, rounded up to a multiple of '
    'mesh.data.',
    AT_LEAST_1,
  )
  depth: int = field(
    50,
    'Length K of the saved lists. A list has no more places than there are '
    'labels, or than 64.',
    AT_LEAST_1,
  )
  ks: tuple[int, ...] = field(
    (1, 3, 5, 10), 'Cut-offs k of the printed and saved metrics.'
  )
  propensity: tuple[float, ...] = field(
    PROPENSITY,
    'The constants A and B of the propensity formula. They are 0.6 and 2.6 for '
    'Amazon data sets such as Amazon-670K, 0.5 and 0.4 for Wikipedia, and '
    'usually 0.55 and 1.5.',
  )
  calibration: Method = field(
    Method.AUTO,
    'The method that turns scores into the probabilities that are shown. It is '
    'fitted on dev.',
  )
  recall: float = field(
    1.0,
    'Share of the best labels that the saved lists are expected to contain. '
    'With a value below 1, TPUs find the lists faster and miss some labels.',
    SHARE,
  )
  leave_out: str = field(
    '',
    'A file with one label id per line: labels that are trained, but neither '
    'predicted nor judged. A file name without a folder is searched for in '
    'data.dir first, and then in the current folder.',
  )

  def faults(self, config: Any, path: str) -> Iterator[str]:
    if not self.ks or min(self.ks) < 1 or max(self.ks) > self.depth:
      yield (
        f'{path}.ks={self.ks}: must be numbers from 1 to '
        f'{path}.depth={self.depth}'
      )
    elif max(self.ks) > MOST_RANKS:
      yield f'{path}.ks={self.ks}: must be at most {MOST_RANKS:,}'
    a, b = (*self.propensity, -1, -1)[:2]
    if len(self.propensity) != 2 or a < 0 or b <= 0:
      yield (
        f'{path}.propensity={self.propensity}: must be two numbers, A of at '
        'least 0 and B above 0'
      )

  def criteria(self) -> 'Criteria':
    from xjax.judge.criteria import Criteria

    return Criteria(ks=self.ks, propensity=self.propensity)
