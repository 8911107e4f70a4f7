"""Times a training step on shortlists against all labels and bare operations.

  python benchmarks/shortlist.py    (a minute)

Each of 64 documents has a shortlist of 1,024 of 655,360 labels, with 384
features. A step is the loss (binary cross entropy), the gradient of the
documents' features, and SGD of the label rows in float32. It is compared with
- the same step over all labels (fused_loss);
- bare operations, one after the other: the gather of each document's rows, the
  products that give logits and both gradients, and the scatter of the rows'
  gradient.
The best of some steps counts; nothing else should run. Memory is what the
compiled step holds beside the rows. It is compared with the rows that the bare
operations gather and their gradient. The benchmark exits with 1 if a bound is
exceeded:

  time / all labels       0.15
  time / bare operations  1.5
  memory / gathered rows  1.2
"""

from collections.abc import Callable
import sys
from typing import Any

from absl import app, flags
from flax import nnx
import jax
import jax.numpy as jnp
from measurement import seconds_of
import numpy as np

from xjax.core.mesh import make_mesh
from xjax.core.mesh_config import MeshConfig
from xjax.core.numerics import full_precision
from xjax.losses.bce import bce
from xjax.networks.batch import Shortlist
from xjax.networks.heads.head import HeadInputs
from xjax.networks.heads.ova import OneVsAll, OneVsAllConfig
from xjax.networks.rows.fused import RowUpdate, StepScalars, fused_loss
from xjax.networks.rows.update import FusedSGD

L, D, B, A, CHUNK = 655_360, 384, 64, 1024, 2048
POSITIVES = 8
BOUNDS = {'all labels': 0.15, 'bare operations': 1.5, 'memory': 1.2}

_STEPS = flags.DEFINE_integer('steps', 6, 'Number of steps of each side.', 1)


def main(argv: list[str]) -> None:
  """Times the sides, prints a table, and checks the bounds."""
  del argv
  ids_BA = shortlists()
  document_BD = jax.random.normal(jax.random.key(1), (B, D)) / D**0.5
  with jax.set_mesh(make_mesh(MeshConfig())):
    ours, memory = head_step(document_BD, ids_BA)
    seconds = {'shortlists': best(ours)}
    seconds['all labels'] = best(head_step(document_BD, None)[0])
  seconds['bare operations'] = best(bare_step(document_BD, ids_BA))
  ratios = {
    name: seconds['shortlists'] / seconds[name]
    for name in ('all labels', 'bare operations')
  }
  ratios['memory'] = memory / (2 * B * A * D * 4)
  print('| side | seconds | shortlists / side | bound |\n|---|---|---|---|')
  for name, s in seconds.items():
    ratio = f'{ratios[name]:.3f} | {BOUNDS[name]}' if name in ratios else ' | '
    print(f'| {name} | {s:.3f} | {ratio} |')
  print(f'{memory / 2**20:,.0f} MiB beside the rows, {ratios["memory"]:.3f} of')
  print(f'the gathered rows and their gradient (bound {BOUNDS["memory"]})')
  failed = [name for name, bound in BOUNDS.items() if ratios[name] > bound]
  sys.exit(f'bounds exceeded: {", ".join(failed)}' if failed else 0)


def shortlists() -> np.ndarray:
  """Draws the shortlists, int32 [B, A]; the first labels of each are gold."""
  rng = np.random.default_rng(0)
  lists = [rng.choice(L, A, replace=False) for _ in range(B)]
  return np.stack(lists).astype(np.int32)


def head_step(
  document_BD: jax.Array, ids_BA: np.ndarray | None
) -> tuple[Callable[[], Any], int]:
  """Returns a step of the head, and the bytes that it holds beside the rows.

  Args:
    document_BD: vectors of the documents.
    ids_BA: shortlists, or None for a step over all labels.
  """

  def head() -> OneVsAll:
    return OneVsAllConfig(chunk=CHUNK).build(HeadInputs(D, L), nnx.Rngs(0))

  graphdef, abstract = nnx.split(nnx.eval_shape(head))
  mask_B = jnp.ones(B, bool)
  gold_BP = jnp.asarray(shortlists()[:, :POSITIVES])
  shortlist = None
  if ids_BA is not None:
    gold_BA = np.broadcast_to(np.arange(A) < POSITIVES, (B, A))
    shortlist = Shortlist(jnp.asarray(ids_BA), jnp.asarray(gold_BA))

  def total(document_BD, params, shortlist):
    scalars = StepScalars(jnp.float32(0.01), jnp.float32(0), jnp.uint32(0))
    head, step = nnx.merge(graphdef, params), RowUpdate(FusedSGD(), {}, scalars)
    if shortlist is None:
      return fused_loss(head, document_BD, gold_BP, mask_B, bce, step)
    return fused_loss(head, document_BD, shortlist, mask_B, bce, step)

  run = jax.jit(jax.value_and_grad(total, has_aux=True), donate_argnums=1)
  run = run.lower(document_BD, abstract, shortlist).compile()
  state = {'params': jax.jit(lambda: nnx.state(head()))()}

  def step() -> Any:
    (loss, (rows, _)), d_document_BD = run(
      document_BD, state['params'], shortlist
    )
    state['params'] = rows
    return loss, d_document_BD, rows

  return step, run.memory_analysis().temp_size_in_bytes


def bare_step(document_BD: jax.Array, ids_BA: np.ndarray) -> Callable[[], None]:
  """Returns the bare operations, each of which ends before the next begins."""
  precision = full_precision(document_BD.dtype)

  def product(equation: str) -> Callable:
    return jax.jit(lambda a, b: jnp.einsum(equation, a, b, precision=precision))

  gather = jax.jit(lambda kernel_LD, ids_BA: kernel_LD[ids_BA])
  scatter = jax.jit(
    lambda kernel_LD, ids_BA, d_BAD: kernel_LD.at[ids_BA].add(d_BAD),
    donate_argnums=0,
  )
  products = list(map(product, ('BD,BAD->BA', 'BA,BAD->BD', 'BA,BD->BAD')))
  ids_BA = jnp.asarray(ids_BA)
  state = {'kernel': jax.jit(lambda: jnp.ones((L, D)))()}

  def step() -> None:
    done = jax.block_until_ready
    rows_BAD = done(gather(state['kernel'], ids_BA))
    logits_BA = done(products[0](document_BD, rows_BAD))
    done(products[1](logits_BA, rows_BAD))
    d_BAD = done(products[2](logits_BA, document_BD))
    state['kernel'] = done(scatter(state['kernel'], ids_BA, d_BAD))

  return step


def best(step: Callable[[], Any]) -> float:
  """Returns the seconds of the fastest of some steps, after one to warm up."""

  def call() -> None:
    jax.block_until_ready(step())

  call()
  return min(seconds_of(call) for _ in range(_STEPS.value))


if __name__ == '__main__':
  app.run(main)
