r"""Your own documents: XR-Linear over {split}.jsonl and labels.jsonl.

Start here with documents of your own. TF-IDF of words and pairs of words over
all zones, and a label tree of linear classifiers: the model of Yu et al. 2022
(https://jmlr.org/papers/v23/20-1085.html), as in eurlex57k_xr_linear.py:large.

  python -m experiments.train \
    --config=experiments/configs/jsonl_xr_linear.py \
    --config.data.dir=DIR --workdir=runs/mine

`.py:small` has more clusters and leaves out more weights: its model is about a
tenth as large, for hundreds of thousands of documents or labels.

Hardware: two CPU cores. Expected: well above the popularity prior in the table;
on the 45,000 documents of EURLEX57K RP@5 0.810 (dev), small 0.801. Time: less
than a minute for a few thousand documents, minutes for 50,000.
"""

from xjax.config.run import Config, EvalConfig
from xjax.config.train import TreeTrain
from xjax.data.config import TfidfConfig
from xjax.data.formats.jsonl import JsonlData
from xjax.score.config import TreeModel
from xjax.score.trees.clusters import ClusterTree

SYSTEMS = ('large', 'small')


def get_config(system: str = 'large') -> Config:
  if system not in SYSTEMS:
    raise ValueError(f'{system!r} is none of {", ".join(SYSTEMS)}')
  large = system == 'large'
  wide = ClusterTree(arity=100, max_leaf=100)
  return Config(
    data=JsonlData(labels='all', tokens=TfidfConfig()),
    model=TreeModel(tree=wide if large else ClusterTree()),
    train=TreeTrain(threshold=0.01 if large else 0.1),
    eval=EvalConfig(batch_size=512),
  )
