"""What each tool's metrics mean: the same sums, other denominators.

A protocol says how a tool (or we) turn ranked lists into numbers, as far as
tools differ. All of them gain 1 / log2(i + 1) for a hit at place i, divide nDCG
by an ideal list of min(k, g), P@k by k however short a list is, PSP as a ratio
of sums over documents, and count every document in F1 and coverage.
"""

import dataclasses
import enum
import functools
import re
import types


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


class Universe(enum.Enum):
  """The labels that a mean over labels is over.

  ALL: every label there is.
  GOLD: those that are gold in a judged document.
  UP_TO_LARGEST: 0 up to the largest index that is gold in a judged document or
    among the first k of its list.
  """

  ALL = 'all'
  GOLD = 'gold'
  UP_TO_LARGEST = 'up to largest'


@dataclasses.dataclass(frozen=True)
class Protocol:
  """The conventions of one tool.

  Attributes:
    name: as in metrics.json.
    title: the tool and the version that was read and run.
    source: where its code is.
    kinds: metrics that it prints, with k for the cut-off: 'P@k', 'micro-F1'.
    ties: how it orders equal scores.
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
  kinds: tuple[str, ...]
  ties: str
  skip_without_gold: bool = False
  frequent_from: int = 50
  psndcg: Ratio = Ratio.SUMS
  psr: Recalled = Recalled.WEIGHT
  coverage_over: Universe = Universe.ALL
  macro_over: Universe = Universe.ALL

  def prints(self, metric: str) -> bool:
    """Whether the tool prints this metric, such as 'P@5'."""
    return kind_of(metric) in self.kinds


@functools.cache  # of the few thousand names there are
def kind_of(metric: str) -> str:
  """The kind of a metric: 'P@5' is a 'P@k', 'macro-F1@5[1-9]' 'macro-F1@k[]'.

  Values in brackets (a bin, a threshold on recall) go, names stay:
  'coverage[a=0.5]@5' is a 'coverage[a]@k'.
  """
  named = re.sub(r'\[([an])=[^]]*\]', r'[\1]', metric)
  return re.sub(r'@k\[.*\]', '@k[]', re.sub(r'@\d+', '@k', named))


# Means over documents; the other kinds are ratios of sums, or over labels.
DOCUMENT_KINDS = (
  *('P@k', 'R@k', 'RP@k', 'nDCG@k', 'nDCG-full@k', 'Hit@k', 'R-Precision'),
  *('PSP-raw@k', 'PSnDCG-full@k', 'PSR@k', 'ILD@k', 'weighted@k'),
)
MACRO_KINDS = (
  *('macro-F1@k', 'macro-P@k', 'macro-R@k', 'macro-F0.5@k', 'macro-F2@k'),
)
_THRESHOLD_KINDS = ('micro-F1', 'macro-F1', 'weighted-F1')

XJAX = Protocol(
  name='xjax',
  title='xjax',
  source='Chalkidis et al. 2019; Jain et al. 2016; Schultheis et al. 2022',
  kinds=(
    *DOCUMENT_KINDS,
    *('PSP@k', 'PSnDCG@k', 'PSR-norm@k', 'micro-F1@k', 'macro-F1@k[]'),
    *MACRO_KINDS,
    *('coverage@k', 'coverage[a]@k', 'coverage[n]@k', 'entropy@k'),
    *_THRESHOLD_KINDS,
    *(f'{kind}-tuned' for kind in _THRESHOLD_KINDS),
  ),
  ties='the smaller label index first',
  skip_without_gold=True,
)

LMTC = Protocol(
  name='lmtc',
  title='lmtc-eurlex57k, commit 44f222e',
  source='https://github.com/iliaschalkidis/lmtc-eurlex57k',
  kinds=('P@k', 'R@k', 'RP@k', 'nDCG@k', *_THRESHOLD_KINDS),
  ties='unstable; mostly the larger label index first',
  skip_without_gold=True,
  frequent_from=51,
)

PYXCLIB = Protocol(
  name='pyxclib',
  title='pyxclib, April 2025',
  source='https://github.com/kunaldahiya/pyxclib',
  kinds=('P@k', 'nDCG@k', 'PSP@k', 'PSnDCG@k', 'R@k', 'PSR-norm@k'),
  ties='unstable',
  psndcg=Ratio.MEANS,
  psr=Recalled.COUNT,
)

NAPKINXC = Protocol(
  name='napkinxc',
  title='napkinXC 0.7.2',
  source='https://github.com/mwydmuch/napkinXC',
  kinds=(
    *('P@k', 'R@k', 'nDCG@k', 'Hit@k', 'PSP@k', 'PSP-raw@k', 'PSnDCG@k'),
    *('PSR@k', 'PSR-norm@k', 'micro-F1@k', 'macro-F1@k', 'macro-P@k'),
    *('macro-R@k', 'coverage@k'),
  ),
  ties='of lists: as they come; of score matrices: unstable',
  psndcg=Ratio.MEANS,
  psr=Recalled.COUNT,
  coverage_over=Universe.GOLD,
  macro_over=Universe.UP_TO_LARGEST,
)

LIBMULTILABEL = Protocol(
  name='libmultilabel',
  title='LibMultiLabel 0.10.0',
  source='https://github.com/ntumlgroup/LibMultiLabel',
  kinds=('P@k', 'R@k', 'RP@k', 'nDCG@k', 'micro-F1', 'macro-F1'),
  ties='unstable (argpartition; torch.topk)',
)

ATTENTIONXML = Protocol(
  name='attentionxml',
  title='AttentionXML, commit e2bbbec',
  source='https://github.com/yourh/AttentionXML',
  kinds=('P@k', 'nDCG@k', 'PSP@k', 'PSnDCG@k'),
  ties='unstable (torch.topk)',
)

PECOS = Protocol(
  name='pecos',
  title='PECOS (libpecos) 1.2.8',
  source='https://github.com/amzn/pecos',
  kinds=('P@k', 'R@k'),
  ties='the smaller label index first',
)

PROTOCOLS = types.MappingProxyType(
  {
    protocol.name: protocol
    for protocol in (
      *(XJAX, LMTC, PYXCLIB, NAPKINXC, LIBMULTILABEL, ATTENTIONXML, PECOS),
    )
  }
)
