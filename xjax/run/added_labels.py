"""A trained model that scores more labels, known by their descriptors."""

from collections.abc import Mapping, Sequence
import functools

import jax
import jax.numpy as jnp
import numpy as np

from xjax.config.run import Config
from xjax.core.errors import DataError
from xjax.data.schema import Label, LabelSpace
from xjax.data.text.subwords import Subwords
from xjax.data.text.words import Vocabulary
from xjax.run.neural_training import plan_neural, scored_labels
from xjax.score.pretrained.architecture import Architecture
from xjax.score.pretrained.descriptors import DescriptorEncoder
from xjax.select.model_scorer import ModelScorer
from xjax.train.initial.descriptors import load_words, saved_name_encoder
from xjax.train.initial.warm_rows import has_label_rows
from xjax.train.parameters import DESCRIPTORS, by_path, from_paths
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
  if config.data.tokens.pretrained:
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


def widen_scorer(
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
  params, like = by_path(scorer.params), by_path(plan.abstract.params)
  like = {name: leaf for name, leaf in like.items() if has_label_rows(leaf)}
  wider = jax.jit(
    functools.partial(_wider, scorer.n_labels, like),
    out_shardings={name: leaf.sharding for name, leaf in like.items()},
  )({name: params[name] for name in like}, rows)
  return ModelScorer(
    plan.graphdef,
    from_paths(plan.abstract.params, params | wider),
    scorer.mesh,
    scored_labels(config.model, space),
    scorer.score_kind,
    scorer.recall,
  )


def _wider(
  before: int,
  like: Mapping[str, jax.ShapeDtypeStruct],
  params: Mapping[str, jax.Array],
  rows: jax.Array,
) -> dict[str, jax.Array]:
  """Label rows that go on with zeros, or with descriptors.

  Args:
    before: labels that have rows.
    like: those to be made, by path.
    params: those there are.
    rows: of descriptors, for the labels after those.
  """
  wider = {
    name: jnp.zeros(leaf.shape, leaf.dtype)
    .at[:before]
    .set(params[name][:before])
    for name, leaf in like.items()
  }
  last = before + len(rows)
  wider[DESCRIPTORS] = wider[DESCRIPTORS].at[before:last].set(rows)
  return wider
