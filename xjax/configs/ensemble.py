r"""Averages the lists of finished runs, without training.

The runs must have been trained on the same corpus, with any models.
X-Transformer (Chang et al. 2020, https://arxiv.org/abs/1905.02331) averages
1 / rank over nine runs. XR-Transformer (Zhang et al. 2021,
https://arxiv.org/abs/2110.00685) averages three runs.

  xjax train --config=ensemble --config.data.dir=DIR \
    --config.model.workdirs=runs/a,runs/b --workdir=runs/both

The variant `:own`, which is the default, reads your own documents in DIR, as
own_linear does. The other variants read the data of other configs: `:eurlex57k`
EURLEX57K, `:xc` the feature files of the Extreme Classification Repository with
rows of length 1, `:tib_sid` the data of tib_sid_xr_linear, `:yso` the data of
yso_xr_linear, and `:synthetic` the corpus of quickstart, which needs no DIR.
--config.model.combine=SIGMOID averages probabilities, which needs runs with a
calibration or with logits, and SOFTMAX averages the softmax over each list.

Data: that of the runs. Hardware: that which the runs need for prediction.
Expected metrics: not measured; often above those of each run. Time: that of
predicting dev and test with each run.
"""

from xjax.data.config import GivenFeaturesConfig, Norm, WordsConfig
from xjax.data.formats.eurlex57k.reader import Eurlex57kData
from xjax.data.formats.jsonl import JsonlData
from xjax.data.formats.own.own import OwnData
from xjax.data.formats.synthetic import SyntheticData
from xjax.data.formats.xc_features import XcFeaturesData
from xjax.models.contract import Config
from xjax.models.ensemble.ensemble_model import EnsembleModel
from xjax.models.eval_config import EvalConfig
from xjax.train.train_config import NoTrain

SYSTEMS = ('own', 'eurlex57k', 'xc', 'tib_sid', 'yso', 'synthetic')


def get_config(system: str = 'own') -> Config:
  match system:
    case 'own':
      data = OwnData(tokens=WordsConfig())
    case 'eurlex57k':
      data = Eurlex57kData(tokens=WordsConfig())
    case 'xc':
      data = XcFeaturesData(tokens=GivenFeaturesConfig(norm=Norm.L2))
    case 'tib_sid':
      zones = 'title', 'abstract'
      data = JsonlData(zones=zones, labels='all', tokens=WordsConfig())
    case 'yso':
      data = JsonlData(labels='all', tokens=WordsConfig())
    case 'synthetic':
      data = SyntheticData(tokens=WordsConfig())
    case _:
      raise ValueError(f'{system!r} is not one of {", ".join(SYSTEMS)}')
  return Config(
    data=data,
    model=EnsembleModel(workdirs=('runs/first', 'runs/second')),
    train=NoTrain(),
    eval=EvalConfig(batch_size=256),
  )
