r"""EURLEX57K, full documents: TF-IDF and one support vector machine per label.

The baseline that tail labels are judged by in "Re-evaluating Extreme
Multi-label Text Classification Methods in Tail Label Prediction": LIBLINEAR's
squared hinge (Fan et al. 2008); small weights are left out as DiSMEC does
(Babbar and Schoelkopf 2017). `.py:liblinear` trains by LIBLINEAR itself, a
label at a time and many times slower.

  python -m experiments.train \
    --config=experiments/configs/eurlex57k_tfidf_svm.py \
    --config.data.dir=DIR --workdir=runs/eurlex57k_tfidf_svm

Hardware: two CPU cores. Expected: not run yet. Time: half an hour.
"""

from xjax.config.run import Config, EvalConfig
from xjax.config.sparse import Blocks, Liblinear, LinearTrain
from xjax.data.config import TfidfConfig
from xjax.data.formats.eurlex57k.reader import Eurlex57kData
from xjax.score.config import LinearModel

SYSTEMS = ('blocks', 'liblinear')


def get_config(system: str = 'blocks') -> Config:
  if system not in SYSTEMS:
    raise ValueError(f'{system!r} is none of {", ".join(SYSTEMS)}')
  solver = Liblinear() if system == 'liblinear' else Blocks()
  return Config(
    data=Eurlex57kData(
      zones=('header', 'recitals', 'main_body', 'attachments'),
      tokens=TfidfConfig(),
    ),
    model=LinearModel(),
    train=LinearTrain(solver=solver),
    eval=EvalConfig(batch_size=512),
  )
