"""A trained model that scores more labels, known by their descriptors."""

from collections.abc import Sequence

import jax
import numpy as np

from xjax.core.errors import DataError
from xjax.core.mesh import LABEL
from xjax.data.schema import Label, LabelSpace
from xjax.data.subwords import Subwords
from xjax.data.vocab import Vocabulary
from xjax.models.architecture import Architecture
from xjax.models.descriptors import DescriptorEncoder
from xjax.models.scorer import ModelScorer
from xjax.train.config import Config
from xjax.train.descriptor_start import DESCRIPTORS, load_words
from xjax.train.encoder_start import reads_subwords
from xjax.train.name_descriptors import saved_name_encoder
from xjax.train.neural import plan_neural, scored_labels
from xjax.train.state import by_path, from_paths
from xjax.train.workdir import Workdir


def describe(
  labels: Sequence[Label],
  space: LabelSpace,
  config: Config,
  vocab: Vocabulary | Subwords,
  workdir: Workdir,
) -> np.ndarray:
  """Embeddings of new labels' descriptors, float32 [len(labels), E].

  Args:
    labels: the new ones.
    space: the run's own labels.
    config: of the run.
    vocab: of the run.
    workdir: of the run, for its word vectors or its encoder.

  Raises:
    DataError: labels without a word that the run has a vector of.
  """
  descriptor = config.model.head.descriptor
  if reads_subwords(config):
    encoder = saved_name_encoder(workdir, descriptor)
  else:
    words = load_words(workdir.word_vectors, vocab)
    # Labels added before do not count: weights are those of the run.
    own = space.labels[: space.n_trained + space.n_held_out]
    encoder = DescriptorEncoder.of(own, descriptor, vocab, words)
  rows = encoder.encode(labels)
  bare = [labels[i].name for i in np.flatnonzero(~rows.any(axis=1))]
  if bare:
    raise DataError(
      'this run has no vector for any word of these labels: '
      f'{", ".join(map(ascii, bare))}; describe them in words of its corpus'
    )
  return rows


def widened(
  scorer: ModelScorer,
  config: Config,
  space: LabelSpace,
  vocab_size: int,
  rows: np.ndarray,
  architecture: Architecture | None,
) -> ModelScorer:
  """The scorer with further labels, which have no rows of their own.

  Args:
    scorer: of the run.
    config: of the run.
    space: its labels, and after all it scores the new ones.
    vocab_size: word ids of the run.
    rows: embeddings of the new labels' descriptors, in their order.
    architecture: of the run's pretrained encoder, if it has one.
  """
  plan = plan_neural(config, space, vocab_size, scorer.mesh, architecture)
  params = by_path(scorer.params)
  wider = {
    name: _wider(params[name], like, scorer.n_labels, name, rows)
    for name, like in by_path(plan.abstract.params).items()
  }
  return ModelScorer(
    plan.graphdef,
    from_paths(plan.abstract.params, wider),
    scorer.mesh,
    scored_labels(config.model, space),
    scorer.score_kind,
    scorer.recall,
  )


def _wider(
  param: jax.Array,
  like: jax.ShapeDtypeStruct,
  before: int,
  name: str,
  rows: np.ndarray,
) -> jax.Array:
  """A parameter whose label rows go on with zeros, or with descriptors."""
  spec = like.sharding.spec
  if not spec or spec[0] != LABEL:
    return param
  values = np.zeros(like.shape, like.dtype)
  values[:before] = np.asarray(param)[:before]
  if name == DESCRIPTORS:
    values[before : before + len(rows)] = rows
  return jax.make_array_from_callback(
    values.shape, like.sharding, values.__getitem__
  )
