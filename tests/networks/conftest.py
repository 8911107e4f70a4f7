"""A head's loss and scores on drawn documents, on any mesh, in any chunks."""

from collections.abc import Callable
import dataclasses
import functools
from typing import Any

from flax import nnx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.fixtures.networks import on_mesh
from xjax.core.types import PAD
from xjax.losses.bce import bce
from xjax.networks.heads.attend import attention_weights
from xjax.networks.heads.chunks import split_head
from xjax.networks.heads.head import Head, TokenFeatures
from xjax.networks.heads.streaming import head_loss
from xjax.networks.topk import head_topk

B, T, D, L = 8, 5, 6, 300
LENGTHS = np.array([5, 4, 1, 2, 5, 3, 1, 0], np.int32)


def draw(tokens=T):
  """Documents of LENGTHS, the last one with no token at all, and their gold."""
  rng = np.random.default_rng(0)
  hidden = rng.normal(size=(B, T, D))
  more = np.random.default_rng(1).normal(size=(B, tokens - T, D))
  hidden = np.concatenate([hidden, more], axis=1).astype(np.float32)
  hidden[-1] = 0  # as encoders have padding; where there is a token it is noise
  positives = rng.integers(0, L, (B, 4)).astype(np.int32)
  positives[:, 3] = PAD
  positives[0] = [299, 299, 0, L + 7]  # twice the same; none of this head
  return TokenFeatures(jnp.asarray(hidden), jnp.asarray(LENGTHS)), positives


@dataclasses.dataclass(frozen=True)
class Trial:
  """A head to be tried.

  Attributes:
    make: chunk -> head, called on a mesh; always the same parameters.
    learnt: bool [L], the labels that the loss is over.
  """

  make: Callable[[int], Head]
  learnt: np.ndarray

  def streamed(
    self,
    mesh=(1, 1),
    chunk=48,
    change=lambda head: None,
    positives_BP=None,
    mask_B=LENGTHS > 0,
    features=None,
    total=head_loss,
  ) -> tuple[np.ndarray, dict[str, np.ndarray], np.ndarray]:
    """A 64th of the loss, its gradients by parameters and hidden states."""
    drawn, positives = draw()
    features = features or drawn
    if positives_BP is None:
      positives_BP = positives
    with on_mesh(*mesh):
      head = self.make(chunk)
      change(head)
      graphdef, params, numbers = nnx.split(head, _is_float, ...)

      @jax.jit
      @functools.partial(jax.value_and_grad, argnums=(0, 1))
      def run(params, hidden_BTD):
        head = nnx.merge(graphdef, params, numbers).ready()
        inputs = head.prepare(features.replace(hidden_BTD=hidden_BTD))
        gold = jnp.asarray(positives_BP), jnp.asarray(mask_B)
        return total(head, inputs, *gold, bce) / 64

      results = jax.block_until_ready(run(params, features.hidden_BTD))
    loss, (d_params, d_hidden) = jax.tree.map(np.asarray, results)
    return loss, nnx.to_pure_dict(d_params), d_hidden

  def dense(
    self, weights=None
  ) -> tuple[np.ndarray, dict[str, np.ndarray], np.ndarray]:
    """As streamed, of all logits at once."""

    def total(head, features, positives_BP, mask_B, loss):
      rows = nnx.to_pure_dict(split_head(head).rows)
      cut = {name: row[:L] for name, row in rows.items()}
      at = np.flatnonzero(self.learnt)
      logits = head.logits(features, cut)[:, at]
      targets = (positives_BP[:, :, None] == at).any(axis=1)
      loss_BL, _ = loss(logits, targets)
      if weights is not None:
        positive_L, negative_L = (x[at] for x in jax.tree.leaves(weights))
        loss_BL *= jnp.where(targets, positive_L, negative_L)
      return jnp.where(mask_B[:, None], loss_BL, 0).sum()

    return self.streamed(total=total)

  def scores(self, mesh=(1, 1), chunk=48, features=None) -> np.ndarray:
    """float32 [B, L], as selected from."""

    def run(head, features):
      return head_topk(head, head.prepare(features), L)

    ids, scores = self._run(run, mesh, chunk, features)
    scores_BL = np.full((ids.shape[1], L), np.nan, np.float32)
    np.put_along_axis(scores_BL, ids[0], scores[0], axis=1)
    return scores_BL

  def attention(self, ids_BK, mesh=(1, 1)) -> np.ndarray:
    """alpha_BKT."""

    def run(head, features):
      inputs = head.prepare(features)
      return attention_weights(head, inputs, jnp.asarray(ids_BK, jnp.int32))

    return self._run(run, mesh, 48, None)

  def _run(self, function, mesh, chunk, features) -> Any:
    with on_mesh(*mesh):
      graphdef, params = nnx.split(self.make(chunk))
      run = jax.jit(lambda p, f: function(nnx.merge(graphdef, p).ready(), f))
      results = run(params, features or draw()[0])
    return jax.tree.map(np.asarray, jax.block_until_ready(results))


def _is_float(path, variable):
  return jnp.issubdtype(variable[...].dtype, jnp.inexact)


@pytest.fixture(scope='session')
def trial_of():
  return Trial


@pytest.fixture(scope='session')
def documents():
  """tokens -> (TokenFeatures padded to so many, int32 gold [B, P])."""
  return draw
