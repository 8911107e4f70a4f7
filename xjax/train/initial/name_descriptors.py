"""Descriptors of labels by the encoder that a run begins with.

Its weights are kept in the workdir's features/: labels that are added later are
embedded as those of the run were, however the encoder was tuned since. So are
those of a run that goes on with the head of another.
"""

from collections.abc import Mapping

from absl import logging
from flax import nnx
import numpy as np

from xjax.core.arrays import Arrays
from xjax.core.atomic import write_npz
from xjax.core.distributed import is_host0
from xjax.score.config import BertConfig, DescriptorConfig
from xjax.score.encoders.bert import Bert
from xjax.score.pretrained.convert import parameter_shapes
from xjax.score.pretrained.name_embeddings import NameEncoder
from xjax.train.initial.vocabulary_rows import piece_rows, with_rows
from xjax.train.initial.warm_start import PIECE_VECTORS
from xjax.train.state import TrainState, by_path, from_paths
from xjax.train.workdir import Workdir

_ENCODER = 'encoder/'


def start_name_encoder(
  state: TrainState,
  workdir: Workdir,
  config: DescriptorConfig,
  describer: Workdir | None = None,
) -> NameEncoder:
  """What embeds the names of a new run's labels; its weights are saved.

  Args:
    state: fresh, with what is pretrained in it.
    workdir: of the run.
    config: which names.
    describer: a run that embedded names by other weights than those that it
      ended with: they are taken, with this run's own for the pieces that its
      tokenizer lacks.

  Raises:
    DataError: a file of the describer is damaged.
  """
  weights = {
    path: np.asarray(param)
    for path, param in by_path(state.params).items()
    if path.startswith(_ENCODER)
  }
  if describer is not None and describer.encoder_weights.exists():
    weights = _of_describer(weights, workdir, describer)
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
  return _name_encoder(_saved_weights(workdir), workdir, config)


def _saved_weights(workdir: Workdir) -> dict[str, np.ndarray]:
  arrays = Arrays.read(workdir.encoder_weights)
  shapes = parameter_shapes(workdir.architecture())
  weights = {p: arrays.take(p, np.float32, s) for p, s in shapes.items()}
  arrays.finish()
  return weights


def _of_describer(
  weights: Mapping[str, np.ndarray], workdir: Workdir, describer: Workdir
) -> Mapping[str, np.ndarray]:
  """A describer's weights; a run's own where they are of another size."""
  theirs = _saved_weights(describer)
  words = weights[PIECE_VECTORS], theirs[PIECE_VECTORS]
  ours, there = workdir.subwords(), describer.subwords()
  if ours.digest != there.digest or words[0].shape != words[1].shape:
    theirs[PIECE_VECTORS] = with_rows(
      words[0], piece_rows(ours, there), words[1]
    )
  if _shapes(weights) != _shapes(theirs):
    if is_host0():
      logging.warning(
        '%s: its encoder has other sizes: label names are embedded by the one '
        'that this run begins with',
        describer.path,
      )
    return weights
  return theirs


def _shapes(weights: Mapping[str, np.ndarray]) -> dict[str, tuple[int, ...]]:
  return {path: array.shape for path, array in weights.items()}


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
