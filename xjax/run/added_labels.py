"""Adds labels to a trained model that knows labels by their descriptors."""

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
  """Embeds the descriptors of new labels.

  Args:
    labels: the new labels.
    space: label space of the run.
    config: config of the run.
    vocab: vocabulary or tokenizer of the run.
    workdir: folder of the run; it has the run's word vectors or encoder.

  Returns:
    float32 [len(labels), E], the embeddings.

  Raises:
    DataError: no word of a label has a vector in the run.
  """
  descriptor = config.model.head.descriptor
  if config.data.tokens.pretrained:
    encoder = saved_name_encoder(workdir, config.model)
  else:
    words = load_words(workdir.word_vectors, vocab)
    workdir.check(workdir.word_vectors)
    # The weights of words are computed only from the labels of the run, and not
    # from labels that were added earlier.
    run_labels = space.labels[: space.n_trained + space.n_held_out]
    encoder = DescriptorEncoder.of(run_labels, descriptor, vocab, words)
  rows = encoder.encode(labels)
  bare = [labels[i].name for i in np.flatnonzero(~rows.any(axis=1))]
  if bare:
    raise DataError(
      'this run has no vector for any word of these labels: '
      f'{", ".join(map(ascii, bare))}; describe the labels in words of the '
      "run's corpus"
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
  """Returns a scorer that also scores new labels by their descriptors.

  The new labels get the embeddings of their descriptors. All other parameters
  of the new labels are zeros.

  Args:
    scorer: scorer of the run.
    config: config of the run.
    space: label space with the new labels; they follow all labels that the run
      scores.
    vocab_size: int, number of word ids of the run.
    rows: float32 [new labels, E], embeddings of the new labels' descriptors.
    architecture: sizes of the run's pretrained encoder; None if there is none.
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
  """Adds rows for new labels to the parameters that have a row per label.

  The new rows of DESCRIPTORS are `rows`. The new rows of all other parameters
  are zeros.

  Args:
    before: int, number of labels that have rows already.
    like: path -> shape and dtype of the parameter after the rows are added.
    params: path -> parameter before the rows are added.
    rows: float32 [new labels, E], embeddings of the new labels' descriptors.
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
