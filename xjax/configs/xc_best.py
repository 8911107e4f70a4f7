r"""Trains the best system on features from the XC Repository.

DIR has train.txt, test.txt and optionally dev.txt; these files may be gzipped.
The feature vector of each document is scaled to unit length. Three proposers
list labels of a document: support vector machines, logistic regressions (one
classifier per label, Fan et al. 2008) and the nearest training documents.
Gradient-boosted trees rank the listed labels, as in eurlex57k_best_cpu.

  xjax train --config=xc_best \
    --config.data.dir=DIR --workdir=runs/xc_best

Data: feature files of the XC repository. Hardware: two CPU cores. Expected on
the test split of Bibtex and time: the table in docs/results.md.
"""

from xjax.config.run import Config, EvalConfig
from xjax.config.stack import ProposerConfig, StackModel, StackTrain
from xjax.config.train import LinearTrain, NoTrain, TrainConfig
from xjax.data.config import GivenFeaturesConfig, Norm
from xjax.data.formats.xc_features import XcFeaturesData
from xjax.score.config import LinearModel, ModelConfig, NeighboursModel
from xjax.score.linear.problem import Loss


def get_config() -> Config:
  return Config(
    data=XcFeaturesData(tokens=_tokens()),
    model=StackModel(
      (
        _proposer('svm', LinearModel(), LinearTrain()),
        _proposer('logistic', LinearModel(), LinearTrain(loss=Loss.LOGISTIC)),
        _proposer('neighbours', NeighboursModel(), NoTrain()),
      )
    ),
    train=StackTrain(),
    eval=EvalConfig(batch_size=512),
  )


def _proposer(
  name: str, model: ModelConfig, train: TrainConfig
) -> ProposerConfig:
  return ProposerConfig(
    _tokens(), (), model, train, batch_size=512, name=name, depth=30
  )


def _tokens() -> GivenFeaturesConfig:
  return GivenFeaturesConfig(norm=Norm.L2)
