r"""Trains the best system on features from the XC Repository.

DIR has train.txt, test.txt and optionally dev.txt; these files may be gzipped.
The feature vector of each document is scaled to unit length. Five proposers
list labels of a document: two support vector machines and a logistic regression
per label (Fan et al. 2008), and the 10 and 100 nearest training documents.
Gradient-boosted trees rank the listed labels, as in eurlex57k_best_cpu.

  xjax train --config=xc_best \
    --config.data.dir=DIR --workdir=runs/xc_best

Data: feature files of the XC repository. Hardware: two CPU cores. Expected on
the test split of Bibtex: P@1 0.674, P@5 0.301. Time: a minute on Bibtex.
"""

from xjax.data.config import GivenFeaturesConfig, Norm
from xjax.data.formats.xc_features import XcFeaturesData
from xjax.models.contract import Config, Model
from xjax.models.eval_config import EvalConfig
from xjax.models.linear.linear_model import LinearModel, LinearTrain
from xjax.models.linear.problem import Loss
from xjax.models.lookup.neighbours_model import NeighboursModel
from xjax.models.stack.boosted import BoostedTrees
from xjax.models.stack.proposers import ProposerConfig
from xjax.models.stack.stack_model import StackModel, StackTrain
from xjax.train.train_config import NoTrain, TrainConfig


def get_config() -> Config:
  logistic = LinearTrain(loss=Loss.LOGISTIC, c=10.0)
  near = NeighboursModel(neighbours=10, power=1.0)
  wide = NeighboursModel(neighbours=100, power=4.0)
  proposers = (
    _proposer('svm', LinearModel(), LinearTrain()),
    _proposer('soft_svm', LinearModel(), LinearTrain(c=0.3)),
    _proposer('logistic', LinearModel(), logistic),
    _proposer('near', near, NoTrain()),
    _proposer('wide', wide, NoTrain()),
  )
  # Chosen on Bibtex, by cross-validation on train. Small corpora need few trees
  # with flat leaves.
  ranker = BoostedTrees(trees=150, leaves=31, rate=0.04, l2=10.0)
  return Config(
    data=XcFeaturesData(tokens=_tokens()),
    model=StackModel(proposers, ranker=ranker),
    train=StackTrain(),
    eval=EvalConfig(batch_size=512),
  )


def _proposer(name: str, model: Model, train: TrainConfig) -> ProposerConfig:
  return ProposerConfig(
    _tokens(), (), model, train, batch_size=512, name=name, depth=30
  )


def _tokens() -> GivenFeaturesConfig:
  return GivenFeaturesConfig(norm=Norm.L2)
