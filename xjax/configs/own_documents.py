r"""Trains models on your own documents, without a neural network.

DIR is a file or a folder of documents (see docs/data.md). Columns with usual
names are guessed, and missing dev and test splits are drawn.

  xjax train --config=NAME --config.data.dir=DIR --workdir=runs/mine

This file imports no library for networks, so these configs start at once.

Data: your own documents. Hardware: two CPU cores. Expected: see each config.
Time: depends on the corpus.
"""

from xjax.configs import variants
from xjax.data.formats.own import OwnData
from xjax.data.label_trees.clusters import ClusterTree
from xjax.data.tokens_config import AutoTfidfConfig, TfidfConfig
from xjax.models.contract import AutoModel, AutoTrain, Config
from xjax.models.eval_config import EvalConfig
from xjax.models.stack.proposers import text_proposers
from xjax.models.stack.stack_model import StackModel, StackTrain
from xjax.models.trees.tree_model import TreeModel, TreeTrain


def auto() -> Config:
  """Chooses a model for your own documents, and says what it chose and why.

  It is the stack of own_best for 500 to 100,000 documents with up to 100,000
  labels. Else it is one linear classifier per label (squared hinge loss as in
  LIBLINEAR, Fan et al. 2008, https://www.jmlr.org/papers/v9/fan08a.html), or a
  label tree if there are many labels.

  Hardware: any. Expected: better metrics than those of linear classifiers, as
  in benchmarks/choices.py. Time: a minute for 3,000 documents, half an hour for
  50,000 with thousands of labels.
  """
  return Config(
    data=OwnData(tokens=AutoTfidfConfig()),
    model=AutoModel(),
    train=AutoTrain(),
    eval=EvalConfig(batch_size=512),
  )


@variants('large small')
def own_linear(size: str) -> Config:
  """Trains XR-Linear on your own documents: CSV, JSON lines, text files etc.

  The model is a label tree of linear classifiers (Yu et al. 2022,
  https://jmlr.org/papers/v23/20-1085.html), as in eurlex57k_xr_linear:large.
  The features are TF-IDF of words and word pairs, from all columns of text. For
  hundreds of thousands of documents or labels, use the variant small, whose
  model is about ten times smaller.

  Expected: metrics well above those of the popularity
  prior (both are printed). For the 45,000 documents of EURLEX57K, RP@5 is 0.809
  on dev (0.801 for small). Time: less than a minute for a few thousand
  documents, minutes for 50,000.
  """
  tree, threshold = ClusterTree(arity=100, max_leaf=100), 0.01
  if size == 'small':
    tree, threshold = ClusterTree(), 0.1
  return Config(
    data=OwnData(tokens=TfidfConfig()),
    model=TreeModel(tree),
    train=TreeTrain(threshold=threshold),
    eval=EvalConfig(batch_size=512),
  )


def own_best() -> Config:
  """Trains the best system without a neural part on your own documents.

  Labels of a document are listed by a label tree (as in own_linear), by the
  nearest training documents, by the centroids of labels, by label names and
  their parts in the text, and by descriptions of labels. Gradient-boosted trees
  (LightGBM, Ke et al. 2017) rank the listed labels. Names and descriptions are
  left out where labels have none. Labels without training documents are ranked
  too, if they have names. What is known of documents beside their text, such as
  authors or dates, is read too: --config.data.facts=FIELD,FIELD. With another
  language than English, set the language of the stems in a config of your own:
  names_proposer(language='german').

  Expected: better metrics than those of own_linear, above all for rare labels.
  Time: about ten times as long as own_linear.
  """
  tokens = TfidfConfig()
  return Config(
    data=OwnData(tokens=tokens),
    model=StackModel(text_proposers(tokens)),
    train=StackTrain(),
    eval=EvalConfig(batch_size=512),
  )
