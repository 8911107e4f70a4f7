r"""Trains SVMs on features from the Extreme Classification Repository.

DIR has train.txt, test.txt and optionally dev.txt; these files may be gzipped.
The feature vector of each document is scaled to unit length. The model is a
support vector machine (SVM) per label (Fan et al. 2008), as in
eurlex57k_tfidf_svm.py.

  xjax train --config=xc_svm \
    --config.data.dir=DIR --workdir=runs/xc_svm

Data: feature files of the XC repository. Hardware: two CPU cores. Expected on
the test split of Bibtex: P@1 0.637, P@5 0.280. Time: depends on the dataset.
"""

from xjax.data.config import GivenFeaturesConfig, Norm
from xjax.data.formats.xc_features import XcFeaturesData
from xjax.models.contract import Config
from xjax.models.eval_config import EvalConfig
from xjax.models.linear.linear_model import LinearModel, LinearTrain


def get_config() -> Config:
  return Config(
    data=XcFeaturesData(tokens=GivenFeaturesConfig(norm=Norm.L2)),
    model=LinearModel(),
    train=LinearTrain(),
    eval=EvalConfig(batch_size=512),
  )
