r"""Trains XR-Linear on your own documents: CSV, JSON lines, text files etc.

DIR is a file or a folder (see docs/data.md). Columns with usual names are
guessed, and missing dev and test splits are drawn. The model is a label tree of
linear classifiers (Yu et al. 2022, https://jmlr.org/papers/v23/20-1085.html),
as in eurlex57k_xr_linear:large. The features are TF-IDF of words and word
pairs, from all columns of text.

  xjax train --config=own_linear \
    --config.data.dir=DIR --workdir=runs/mine

For hundreds of thousands of documents or labels, use the variant `:small`,
whose model is about ten times smaller.

Data: your own documents. Hardware: two CPU cores. Expected: metrics well above
those of the popularity prior (both are printed). For the 45,000 documents of
EURLEX57K, RP@5 is 0.810 on dev (0.801 for small). Time: less than a minute for
a few thousand documents, minutes for 50,000.
"""

from xjax.data.config import TfidfConfig
from xjax.data.formats.own.own import OwnData
from xjax.data.label_trees.clusters import ClusterTree
from xjax.models.contract import Config
from xjax.models.eval_config import EvalConfig
from xjax.models.trees.tree_model import TreeModel, TreeTrain

SYSTEMS = ('large', 'small')


def get_config(system: str = 'large') -> Config:
  if system not in SYSTEMS:
    raise ValueError(f'{system!r} is not one of {", ".join(SYSTEMS)}')
  large = system == 'large'
  wide = ClusterTree(arity=100, max_leaf=100)
  return Config(
    data=OwnData(tokens=TfidfConfig()),
    model=TreeModel(tree=wide if large else ClusterTree()),
    train=TreeTrain(threshold=0.01 if large else 0.1),
    eval=EvalConfig(batch_size=512),
  )
