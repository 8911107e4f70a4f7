"""Descriptors of labels by the encoder that a run begins with.

Its weights are kept in the workdir's features/: labels that are added later are
embedded as those of the run were, however the encoder was tuned since.
"""

from collections.abc import Mapping

from flax import nnx
import numpy as np

from xjax.core.atomic import write_npz
from xjax.core.distributed import is_host0
from xjax.evaluate.arrays import Arrays
from xjax.models.bert import Bert
from xjax.models.config import BertConfig, DescriptorConfig
from xjax.models.convert import parameter_shapes
from xjax.models.name_embeddings import NameEncoder
from xjax.train.state import TrainState, by_path, from_paths
from xjax.train.workdir import Workdir

_ENCODER = 'encoder/'


def start_name_encoder(
  state: TrainState, workdir: Workdir, config: DescriptorConfig
) -> NameEncoder:
  """What embeds the names of a new run's labels; its weights are saved.

  Args:
    state: fresh, with what is pretrained in it.
    workdir: of the run.
    config: which names.
  """
  weights = {
    path: np.asarray(param)
    for path, param in by_path(state.params).items()
    if path.startswith(_ENCODER)
  }
  if is_host0():
    write_npz(workdir.encoder_weights, weights)
  return _name_encoder(weights, workdir, config)


def saved_name_encoder(
  workdir: Workdir, config: DescriptorConfig
) -> NameEncoder:
  """What embedded the names of a run's labels.

  Raises:
    DataError: a file of features/ is absent or damaged, or of another encoder.
  """
  arrays = Arrays.read(workdir.encoder_weights)
  shapes = parameter_shapes(workdir.architecture())
  weights = {p: arrays.take(p, np.float32, s) for p, s in shapes.items()}
  arrays.finish()
  return _name_encoder(weights, workdir, config)


def _name_encoder(
  weights: Mapping[str, np.ndarray],
  workdir: Workdir,
  config: DescriptorConfig,
) -> NameEncoder:
  bert = nnx.eval_shape(
    lambda: Bert(workdir.architecture(), BertConfig(), rngs=nnx.Rngs(0))
  )
  graphdef, params = nnx.split(bert)
  mine = {path.removeprefix(_ENCODER): x for path, x in weights.items()}
  bert = nnx.merge(graphdef, from_paths(params, mine))
  return NameEncoder(config, workdir.subwords(), bert)
