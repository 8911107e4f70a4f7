"""Defines what a transfer of a corpus writes, and checks it."""

import dataclasses
import enum
import math
from typing import Any

from xjax.core.distributed import process_count
from xjax.core.errors import ConfigError
from xjax.data.config import TfidfConfig
from xjax.data.files.json_lines import Fields
from xjax.models.contract import Config


class Target(enum.Enum):
  FLAT = 'flat'  # the labels have no parents
  HIERARCHICAL = 'hierarchical'  # labels are below clusters, the meta-labels
  ORIGINAL = 'original'  # that from which an earlier transfer made the source


class KeptLabels(enum.Enum):
  ALL = 'all'  # all labels of the hierarchy; documents keep their labels
  CLOSED = 'closed'  # all; documents also get the ancestors of their labels
  LEAVES = 'leaves'  # the labels without children; documents lose the others


class Form(enum.Enum):
  JSONL = 'jsonl'  # {split}.jsonl and labels.jsonl, which JsonlData reads
  HTC = 'htc'  # {split}.json and taxonomy.txt, which HtcData reads


@dataclasses.dataclass(frozen=True)
class TransferRequest:
  target: Target
  output: str  # path of the folder to write
  kept: KeptLabels = KeptLabels.ALL  # in a flat corpus
  # For each level of clusters, the number of clusters below a node of the level
  # above; only for hierarchical corpora.
  branching: tuple[int, ...] = ()
  prefix: str = 'meta_'  # with which the ids of meta-labels begin
  max_features: int = 1000  # to keep of each label in clustering; 0 keeps all
  seed: int = 0  # of the clustering
  form: Form = Form.JSONL
  splits: tuple[str, ...] = ()  # besides train, dev and test
  gzip: bool = False

  def check(self, config: Config) -> None:
    """Refuses (ConfigError) what cannot be met, before a corpus is read."""
    if process_count() > 1:
      raise ConfigError('xjax transfer can only be used by one process')
    if config.data.sparse:
      raise ConfigError(
        f'config.data={type(config.data).__name__}(...): the documents are '
        'features, but a transferred corpus has texts: no format that xjax '
        'reads has both features and parents of labels, and the clustering '
        'divides by the number of words of a document; give the texts of the '
        'corpus, for example with --config=xc_repo_bigru_lwan'
      )
    if self.target is not Target.HIERARCHICAL:
      return
    self._check_prefix()
    if not self.branching:
      raise ConfigError(
        '--branching is missing; give the number of clusters below the root, '
        'then the number of clusters below each of them, and so on, such as '
        '--branching=256,8'
      )
    if min(self.branching) < 2:
      raise ConfigError(
        f'--branching={",".join(map(str, self.branching))}: each number of '
        'clusters must be at least 2'
      )

  def _check_prefix(self) -> None:
    fields = Fields({})
    fields.as_id(f'{self.prefix}1_0', 'the id of a meta-label')
    if fields.faults:
      raise ConfigError(
        f'--prefix={self.prefix!a}: {fields.faults[0]}; choose another --prefix'
      )

  def check_size(self, n_labels: int) -> None:
    """Checks that no cluster of labels would be empty."""
    clusters = math.prod(self.branching)
    if clusters > n_labels:
      product = ' x '.join(map(str, self.branching))
      raise ConfigError(
        f'--branching={",".join(map(str, self.branching))}: makes {product} = '
        f'{clusters:,} clusters on the lowest level, but the corpus has only '
        f'{n_labels:,} labels; give smaller numbers'
      )

  def facts(self, config: Config) -> dict[str, Any]:
    """Returns what decides the output but the source, by flag or field."""
    facts = {
      'to': self.target.value,
      'format': self.form.value,
      'splits': list(self.splits),
      'gzip': self.gzip,
      'data.zones': list(config.data.zones),
    }
    if self.target is Target.FLAT:
      facts['labels'] = self.kept.value
    if self.target is Target.HIERARCHICAL:
      facts |= {
        'branching': list(self.branching),
        'prefix': self.prefix,
        'max_features': self.max_features,
        'seed': self.seed,
        'data.labels': config.data.label_space,
        'data.tokens': dataclasses.asdict(tfidf_of(config)),
      }
    return facts


def tfidf_of(config: Config) -> TfidfConfig:
  """Returns config.data.tokens if they are TF-IDF, else the default."""
  tokens = config.data.tokens
  return tokens if isinstance(tokens, TfidfConfig) else TfidfConfig()
