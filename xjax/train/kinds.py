"""The kinds among which the unions of a config choose, and their tags."""

from xjax.data.config import (
  Eurlex57kData,
  FeatureFilesConfig,
  GivenFeaturesConfig,
  HtcData,
  JsonlData,
  SubwordsConfig,
  SyntheticData,
  TfidfConfig,
  WordsConfig,
  XcFeaturesData,
  XcRepoData,
)
from xjax.losses.config import (
  BCEConfig,
  ClassBalancedWeights,
  EvenWeights,
  FocalConfig,
  PropensityWeights,
  SoftmaxConfig,
  SquaredHingeConfig,
)
from xjax.models.config import (
  BertConfig,
  BiGRUConfig,
  ClsConfig,
  CNNConfig,
  DescriptorConfig,
  EmbeddingConfig,
  ExactMatchModel,
  FeaturesConfig,
  HANConfig,
  LabelAttentionConfig,
  LinearModel,
  MeanConfig,
  NeuralModel,
  NoEmbedding,
  NoEncoder,
  NoPooling,
  OneVsAllConfig,
  SelfAttentionConfig,
  TreeModel,
  UnifiedConfig,
  ZeroShotConfig,
)
from xjax.train.average import EMAConfig, NoAverage, SWAConfig
from xjax.train.config import (
  ByOptimizer,
  FusedAdagrad,
  FusedSGD,
  NeuralTrain,
  NoTrain,
)
from xjax.train.linear_config import (
  Liblinear,
  LinearTrain,
  Newton,
  TreeTrain,
)
from xjax.trees.config import (
  ClusterTree,
  CompleteTree,
  HuffmanTree,
  TaxonomyTree,
)

# Tags of config.json; a new kind of data, model or training adds a line.
KINDS = {
  'synthetic': SyntheticData,
  'eurlex57k': Eurlex57kData,
  'jsonl': JsonlData,
  'xc_repo': XcRepoData,
  'xc_features': XcFeaturesData,
  'htc': HtcData,
  'words': WordsConfig,
  'subwords': SubwordsConfig,
  'feature_files': FeatureFilesConfig,
  'tfidf': TfidfConfig,
  'given_features': GivenFeaturesConfig,
  'neural': NeuralModel,
  'embedding': EmbeddingConfig,
  'features': FeaturesConfig,
  'no_embedding': NoEmbedding,
  'no_encoder': NoEncoder,
  'bigru': BiGRUConfig,
  'cnn': CNNConfig,
  'han': HANConfig,
  'bert': BertConfig,
  'no_pooling': NoPooling,
  'mean': MeanConfig,
  'self_attention': SelfAttentionConfig,
  'cls': ClsConfig,
  'label_attention': LabelAttentionConfig,
  'one_vs_all': OneVsAllConfig,
  'descriptor': DescriptorConfig,
  'zero_shot': ZeroShotConfig,
  'unified': UnifiedConfig,
  'gradient': NeuralTrain,
  'bce': BCEConfig,
  'focal': FocalConfig,
  'squared_hinge': SquaredHingeConfig,
  'softmax': SoftmaxConfig,
  'by_optimizer': ByOptimizer,
  'fused_sgd': FusedSGD,
  'fused_adagrad': FusedAdagrad,
  'even_weights': EvenWeights,
  'class_balanced': ClassBalancedWeights,
  'propensity': PropensityWeights,
  'no_average': NoAverage,
  'ema': EMAConfig,
  'swa': SWAConfig,
  'exact_match': ExactMatchModel,
  'none': NoTrain,
  'linear': LinearModel,
  'linear_train': LinearTrain,
  'liblinear': Liblinear,
  'newton': Newton,
  'label_tree': TreeModel,
  'tree_train': TreeTrain,
  'cluster_tree': ClusterTree,
  'complete_tree': CompleteTree,
  'huffman_tree': HuffmanTree,
  'taxonomy_tree': TaxonomyTree,
}


def choices(kind: type) -> tuple[type, ...]:
  """The kinds among which a union chooses; none where kind is no union."""
  if kind in KINDS.values():
    return ()
  return tuple(one for one in KINDS.values() if issubclass(one, kind))
