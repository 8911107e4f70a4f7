r"""Trains XR-Linear, a label tree of linear classifiers, on EURLEX57K.

Features are TF-IDF of the words and word pairs in full documents. Labels are
clustered by balanced k-means over the features of their documents. The loss is
squared hinge, and the search is a beam search. This is the linear model of Yu
et al., JMLR 2022 (https://jmlr.org/papers/v23/20-1085.html).

  xjax train --config=eurlex57k_xr_linear \
    --config.data.dir=DIR --workdir=runs/eurlex57k_xr_linear

The variant `:large` has only one level of clusters below the root and
removes fewer weights. It is better, but slower and ten times as large.
--config.model.n_trees=3 trains an ensemble of three trees.

Data: EURLEX57K. Hardware: two CPU cores. Expected on dev: RP@5 0.801 and nDCG@5
0.826; for the variant `large`, RP@5 0.810 and nDCG@5 0.834. Time: 6 minutes.
"""

from xjax.data.config import TfidfConfig
from xjax.data.formats.eurlex57k.reader import Eurlex57kData
from xjax.data.label_trees.clusters import ClusterTree
from xjax.models.contract import Config
from xjax.models.eval_config import EvalConfig
from xjax.models.trees.tree_model import TreeModel, TreeTrain

SYSTEMS = ('small', 'large')


def get_config(system: str = 'small') -> Config:
  if system not in SYSTEMS:
    raise ValueError(f'{system!r} is not one of {", ".join(SYSTEMS)}')
  large = system == 'large'
  wide = ClusterTree(arity=100, max_leaf=100)
  return Config(
    data=Eurlex57kData(
      zones=('header', 'recitals', 'main_body', 'attachments'),
      tokens=TfidfConfig(),
    ),
    model=TreeModel(tree=wide if large else ClusterTree()),
    train=TreeTrain(threshold=0.01 if large else 0.1),
    eval=EvalConfig(batch_size=512),
  )
