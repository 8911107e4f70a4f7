"""Lists the systems that linear.py runs on each dataset, and our bounds."""

from collections.abc import Mapping
import dataclasses

from xjax.data.formats.data_config import DataConfig
from xjax.data.formats.eurlex57k import Eurlex57kData
from xjax.data.formats.jsonl import JsonlData

SVMS = ('pecos_flat', 'libmultilabel_flat', 'svm')
LOGISTIC = ('napkinxc_flat', 'lr')
TREES = ('pecos', 'napkinxc', 'omikuji', 'libmultilabel')


@dataclasses.dataclass(frozen=True)
class Duel:
  """Holds the bounds that one of our systems must keep.

  Attributes:
    ours: name of our system.
    peers: names; the best value of their first ways of predicting counts.
    columns: columns in which we may not be below the peers by more than slack.
    slack: difference of metrics, which are in [0, 1].
    shares: for each of BOUNDED, our maximum as a share of the first peer's
      figure; (): no bounds.
    least: column -> value that we must reach, independent of the peers.
  """

  ours: str
  peers: tuple[str, ...]
  columns: tuple[str, ...]
  slack: float
  shares: tuple[float, ...] = ()
  least: Mapping[str, float] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class Dataset:
  """Holds the systems to run on a dataset.

  Attributes:
    split: split to judge.
    data: config of the data, without the folder; None: files of features.
    peers: names from linear_systems.SYSTEMS.
    beam: beam of the peers' searches; our configs have the same beam.
    ours: name of our system -> its config file, with :SYSTEM.
    duels: bounds for our systems, on rows of unit length.
    fields: name of our system -> config fields that differ from the file.
  """

  split: str
  data: DataConfig | None
  peers: tuple[str, ...]
  beam: int
  ours: dict[str, str]
  duels: tuple[Duel, ...]
  fields: Mapping[str, Mapping[str, object]] = dataclasses.field(
    default_factory=dict
  )


LISTS = ('RP@5', 'nDCG@5', 'PSP@5')
PRECISIONS = ('P@1', 'P@3', 'P@5')
DATASETS = {
  'eurlex57k': Dataset(
    split='dev',
    data=Eurlex57kData(labels='label_universe.txt'),
    peers=TREES,
    beam=10,
    ours={
      'ours_xr_linear': 'eurlex57k_xr_linear',
      'ours_plt': 'eurlex57k_plt',
      'ours_large': 'eurlex57k_xr_linear:large',
    },
    duels=(
      Duel(
        'ours_xr_linear',
        ('pecos',),
        (*LISTS, 'few RP@5'),
        slack=0.003,
        shares=(1.0, 1.0, 1.0, 1.0, 1.0),
      ),
      Duel(
        'ours_plt',
        ('napkinxc',),
        (*LISTS, 'few RP@5'),
        slack=0.003,
        shares=(0.8, 0.2, 0.2, 1.0, 1.0),
      ),
      Duel(
        'ours_large',
        ('libmultilabel',),
        LISTS,
        slack=0.0,
        least={'few RP@5': 0.67},
      ),
    ),
  ),
  'tib_sid_en': Dataset(
    split='dev',
    data=JsonlData(labels='all', zones=('title', 'abstract')),
    peers=('pecos',),
    beam=20,
    ours={'ours_xr_linear': 'tib_sid_xr_linear'},
    duels=(
      Duel('ours_xr_linear', ('pecos',), ('P@5', 'RP@5', 'PSP@5'), 0.003),
    ),
  ),
  'bibtex': Dataset(
    split='test',
    data=None,
    peers=TREES + SVMS + LOGISTIC,
    beam=10,
    ours={
      'ours_xr_linear': 'xc_xr_linear',
      'ours_plt': 'xc_plt',
      'ours_svm': 'xc_svm',
      'ours_logistic': 'xc_svm',
    },
    duels=(
      # omikuji is left out: it is random in each run, with P@1 .631 to .643.
      Duel(
        'ours_xr_linear', ('pecos', 'libmultilabel'), PRECISIONS, slack=0.003
      ),
      Duel('ours_plt', ('napkinxc',), PRECISIONS, slack=0.003),
      Duel('ours_svm', SVMS, PRECISIONS, slack=0.003),
      Duel('ours_logistic', LOGISTIC, PRECISIONS, slack=0.003),
    ),
    fields={'ours_logistic': {'train.loss': 'LOGISTIC', 'train.c': 10.0}},
  ),
}
