r"""EURLEX57K, full documents: predicts labels whose names occur in the text.

Exact Match of Chalkidis et al., "Large-Scale Multi-Label Text Classification on
EU Legislation", ACL 2019, https://aclanthology.org/P19-1636, Table 2. Nothing
is trained, so labels without training documents are predicted like all others.
Labels are ranked by how often their name occurs, then by the length of the
name; the paper does not describe its ranking.

  python -m experiments.train \
    --config=experiments/configs/eurlex57k_exact_match.py \
    --config.data.dir=DIR --workdir=runs/eurlex57k_exact_match

--config.model.alt=true also searches for alternative names, which is better on
few and zero labels but worse on all labels.

Hardware: one CPU core. Expected: dev RP@5 0.240, nDCG@5 0.221, micro-F1 0.140;
frequent RP@5 0.314, few 0.223, zero 0.195. The paper, on test: 0.097, 0.099,
0.120; 0.219, 0.111, 0.194 (without any ranking, RP@5 would be 0.115 here).
Time: a minute, including 3 s to find the names.
"""

from xjax.config.run import Config, EvalConfig
from xjax.config.train import NoTrain
from xjax.data.config import WordsConfig
from xjax.data.formats.eurlex57k.reader import Eurlex57kData
from xjax.score.config import ExactMatchModel


def get_config() -> Config:
  return Config(
    data=Eurlex57kData(
      zones=('header', 'recitals', 'main_body', 'attachments'),
      tokens=WordsConfig(max_tokens=100_000, buckets=(100_000,)),
    ),
    model=ExactMatchModel(),
    train=NoTrain(),
    # The text of a long document has more than 200 label names.
    eval=EvalConfig(depth=300),
  )
