"""Defines the protocols, which record how evaluation tools define metrics.

Tools compute the same sums, but divide them by different denominators. All
agree on these definitions:

- In DCG, a hit at place i adds 1 / log2(i + 1).
- nDCG@k is DCG@k divided by the DCG of min(k, g) hits, of g gold labels.
- P@k is the number of hits divided by k, even if a list is shorter than k.
- PSP is a ratio of sums over documents.
- F1 and coverage count every document, including documents without gold.
"""

import types

# These imports define the metric classes, which protocols find by name.
from xjax.judge.metrics import (
  document_metrics as document_metrics,
  hierarchical as hierarchical,
  label_metrics as label_metrics,
)
from xjax.judge.metrics.metric import (
  GOLD_LABELS,
  UP_TO_LARGEST,
  Protocol,
  PSnDCGVariant,
  PSRDenominator,
)

THRESHOLD_KINDS = ('micro-F1', 'macro-F1', 'weighted-F1')

# By default, the field `protocols` of a metric contains `xjax`. So this
# protocol prints all metrics of xjax and all metrics that a user adds.
XJAX = Protocol(
  name='xjax',
  title='xjax',
  source='Chalkidis et al. 2019; Jain et al. 2016; Schultheis et al. 2022',
  skip_without_gold=True,
)

LMTC = Protocol(
  name='lmtc',
  title='lmtc-eurlex57k, commit 44f222e',
  source='https://github.com/iliaschalkidis/lmtc-eurlex57k',
  printed=('P@k', 'R@k', 'RP@k', 'nDCG@k', *THRESHOLD_KINDS),
  skip_without_gold=True,
  frequent_from=51,
  assigns_equal=False,
)

PYXCLIB = Protocol(
  name='pyxclib',
  title='pyxclib, April 2025',
  source='https://github.com/kunaldahiya/pyxclib',
  printed=('P@k', 'nDCG@k', 'PSP@k', 'PSnDCG@k', 'R@k', 'PSR-norm@k'),
  psndcg=PSnDCGVariant.MEANS,
  psr=PSRDenominator.COUNT,
)

NAPKINXC = Protocol(
  name='napkinxc',
  title='napkinXC 0.7.2',
  source='https://github.com/mwydmuch/napkinXC',
  printed=(
    *('P@k', 'R@k', 'nDCG@k', 'Hit@k', 'PSP@k', 'PSP-raw@k', 'PSnDCG@k'),
    *('PSR@k', 'PSR-norm@k', 'micro-F1@k', 'macro-F1@k', 'macro-P@k'),
    *('macro-R@k', 'coverage@k'),
  ),
  psndcg=PSnDCGVariant.MEANS,
  psr=PSRDenominator.COUNT,
  coverage_over=GOLD_LABELS,
  macro_over=UP_TO_LARGEST,
)

LIBMULTILABEL = Protocol(
  name='libmultilabel',
  title='LibMultiLabel 0.10.0',
  source='https://github.com/ntumlgroup/LibMultiLabel',
  printed=('P@k', 'R@k', 'RP@k', 'nDCG@k', 'micro-F1', 'macro-F1'),
  assigns_equal=False,
)

ATTENTIONXML = Protocol(
  name='attentionxml',
  title='AttentionXML, commit e2bbbec',
  source='https://github.com/yourh/AttentionXML',
  printed=('P@k', 'nDCG@k', 'PSP@k', 'PSnDCG@k'),
)

PECOS = Protocol(
  name='pecos',
  title='PECOS (libpecos) 1.2.8',
  source='https://github.com/amzn/pecos',
  printed=('P@k', 'R@k'),
)

PROTOCOLS = types.MappingProxyType(
  {
    protocol.name: protocol
    for protocol in (
      *(XJAX, LMTC, PYXCLIB, NAPKINXC, LIBMULTILABEL, ATTENTIONXML, PECOS),
    )
  }
)
