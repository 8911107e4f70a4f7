"""Times the exact top-50 of 670,000 and 3,000,000 labels.

  python benchmarks/topk.py        (two minutes, nothing else running)

32 documents, one-vs-all in float32, two threads. The limit is the bare product
of documents and label rows, chunk by chunk; the rate at which it reads rows
shows whether memory limits it. The other sides are: ours, for all labels, and
with three slices in the same pass; a dense twin, which computes all logits and
then lax.top_k; and NumPy, with all logits, argpartition, and a sort of the 50.
All sides take turns; the best turn of each counts. Then another process
measures how much peak memory it takes to select from 3,000,000 labels for 2,000
documents, and to judge the lists. The benchmark exits with 1 if a bound is
missed.
"""

from collections.abc import Callable
import subprocess
import sys
import time
from typing import Any

from absl import app, flags
from flax import nnx
import jax
from jax import lax
import jax.numpy as jnp
from measurement import memory, reset_peak, seconds_of, use_cores
import numpy as np

from xjax.core.mesh import make_mesh
from xjax.core.mesh_config import MeshConfig
from xjax.core.ranking import Lists, Query
from xjax.core.types import Ragged, ScoreKind
from xjax.data.documents import Documents
from xjax.data.schema import Label, LabelSpace, Split
from xjax.data.vectors.feature_rows import FeatureRows
from xjax.judge.criteria import Criteria
from xjax.judge.judge import judge
from xjax.judge.make_predictions import predict
from xjax.models.scorer import Scorer, rank_blocks
from xjax.networks.heads.head import HeadInputs
from xjax.networks.heads.ova import OneVsAllConfig
from xjax.networks.topk import head_topk

SIZES = (670_000, 3_000_000)
DOCUMENTS, K, CHUNK, SLICES = 32, 50, 8192, 3
# Shares: of the dense twin's seconds; of the bytes of all logits of one batch.
BOUND, MEMORY_BOUND = 1.0, 0.5
JUDGED, DIM = 2000, 16  # for the measurement of memory

_DIM = flags.DEFINE_integer('dim', 64, "Size of a document's vector.", 1)
_TURNS = flags.DEFINE_integer('turns', 7, 'Number of turns per side.', 1)
_MEMORY = flags.DEFINE_bool('memory', False, 'Only measure memory.')


def main(argv: list[str]) -> None:
  """Times both sizes, then measures memory."""
  del argv
  use_cores(2)
  jax.set_mesh(make_mesh(MeshConfig()))
  if _MEMORY.value:
    sys.exit(int(select_and_judge(SIZES[-1])))
  missed = [compare(n_labels, _DIM.value) for n_labels in SIZES]
  done = subprocess.run([sys.executable, __file__, '--memory'])
  sys.exit(int(any(missed) or done.returncode != 0))


def compare(n_labels: int, dim: int) -> bool:
  """Prints a table; returns whether ours is slower than the dense twin."""
  head = OneVsAllConfig(chunk=CHUNK).build(
    HeadInputs(dim, n_labels), nnx.Rngs(0)
  )
  document_BD = jax.random.normal(jax.random.key(1), (DOCUMENTS, dim))
  rng = np.random.default_rng(0)
  slices = tuple(map(jnp.asarray, rng.random((SLICES, n_labels)) < 0.3))
  graphdef, params = nnx.split(head)
  kernel_LD = head.kernel[...]
  kernel, document = np.asarray(kernel_LD), np.asarray(document_BD)

  @jax.jit
  def ours(params, document_BD, slices):
    return head_topk(nnx.merge(graphdef, params), document_BD, K, slices=slices)

  sides = {
    'bare product': lambda: product(kernel_LD, document_BD),
    'ours': lambda: ours(params, document_BD, ()),
    f'ours, {SLICES} slices': lambda: ours(params, document_BD, slices),
    'dense twin': lambda: dense(kernel_LD[:n_labels], document_BD),
    'NumPy': lambda: by_numpy(kernel[:n_labels], document),
  }
  outputs = {name: jax.block_until_ready(run()) for name, run in sides.items()}
  np.testing.assert_allclose(outputs['ours'][1][0], outputs['NumPy'], rtol=1e-4)
  best = dict.fromkeys(sides, np.inf)
  for _ in range(_TURNS.value):
    for name, run in sides.items():
      elapsed = seconds_of(lambda run=run: jax.block_until_ready(run()))
      best[name] = min(best[name], elapsed)
  limit = best['bare product']
  print(
    f'{DOCUMENTS} documents x {n_labels:,} labels, D = {dim}, k = {K}, chunks '
    f'of {CHUNK}: the product does '
    f'{2e-9 * DOCUMENTS * kernel.size / limit:.0f} GFLOP/s and reads '
    f'{1e-9 * kernel.nbytes / limit:.1f} GB/s'
  )
  for name, value in best.items():
    print(f'  {name:20} {value:.3f} s  {value / limit:5.2f} x the product')
  ratio = best['ours'] / best['dense twin']
  verdict = 'ok' if ratio <= BOUND else 'MISSED'
  print(f'  ours / dense twin {ratio:.2f} (bound {BOUND}): {verdict}')
  return ratio > BOUND


@jax.jit
def product(kernel_LD: jax.Array, document_BD: jax.Array) -> jax.Array:
  """Computes the logits chunk by chunk; each chunk overwrites the last one."""

  def body(i: jax.Array, logits_BC: jax.Array) -> jax.Array:
    del logits_BC
    rows_CD = lax.dynamic_slice_in_dim(kernel_LD, i * CHUNK, CHUNK)
    return jnp.matmul(document_BD, rows_CD.T, precision='highest')

  zeros_BC = jnp.zeros((len(document_BD), CHUNK))
  return lax.fori_loop(0, len(kernel_LD) // CHUNK, body, zeros_BC)


@jax.jit
def dense(kernel_LD: jax.Array, document_BD: jax.Array) -> tuple:
  """Returns the best K from the logits of all labels at once."""
  logits_BL = jnp.matmul(document_BD, kernel_LD.T, precision='highest')
  return lax.top_k(logits_BL, K)


def by_numpy(kernel_LD: np.ndarray, document_BD: np.ndarray) -> np.ndarray:
  """Returns the scores of the best K by NumPy, best first."""
  logits_BL = document_BD @ kernel_LD.T
  at_BK = np.argpartition(logits_BL, -K, axis=1)[:, -K:]
  return -np.sort(-np.take_along_axis(logits_BL, at_BK, axis=1), axis=1)


class RandomScorer(Scorer):
  """A random one-vs-all head on document vectors."""

  score_kind = ScoreKind.LOGIT

  def __init__(self, n_labels: int):
    self.n_labels = n_labels
    graphdef, self.params = nnx.split(
      OneVsAllConfig(chunk=CHUNK).build(HeadInputs(DIM, n_labels), nnx.Rngs(0))
    )

    @jax.jit
    def run(params, document_BD, slices):
      head = nnx.merge(graphdef, params)
      return head_topk(head, document_BD, K, slices=slices)

    self._run = run

  def rank(self, documents: Documents, query: Query) -> Lists:
    """Implements Scorer.rank, only for k = K and slices."""
    assert query.k == K
    return rank_blocks(documents, query, DOCUMENTS, self._block)

  def _block(self, documents: Documents, query: Query) -> Lists:
    n = len(documents)
    vectors_ND = documents.vectors.padded(np.arange(n), 1)[:, 0]
    vectors_BD = np.pad(vectors_ND, [(0, DOCUMENTS - n), (0, 0)])
    lists = self._run(self.params, vectors_BD, query.slices)
    return Lists(*(x[:, :n] for x in jax.device_get(lists)))


def select_and_judge(n_labels: int) -> bool:
  """Prints seconds and memory of lists and metrics; returns if too much."""
  rng = np.random.default_rng(0)
  scorer = RandomScorer(n_labels)
  space = LabelSpace(
    labels=tuple(Label(str(i)) for i in range(n_labels)),
    train_counts=rng.poisson(3, n_labels).astype(np.int32),
    n_train=10**6,
    n_trained=n_labels,
  )
  gold = Ragged(
    np.arange(0, 5 * JUDGED + 1, 5),
    rng.integers(0, n_labels, (JUDGED, 5)).astype(np.int32).ravel(),
  )
  ids = tuple(map(str, range(JUDGED)))
  vectors = rng.normal(size=(JUDGED, DIM)).astype(np.float32)
  rows = FeatureRows.of('random', ids, vectors, np.ones(JUDGED))
  split = Split('test', ids, gold, [''] * JUDGED, '', rows)
  dense_mib = 4 * DOCUMENTS * n_labels / 2**20
  print(
    f'{JUDGED:,} documents x {n_labels:,} labels, D = {DIM}: a kernel of '
    f'{scorer.params.kernel.nbytes / 2**20:.0f} MiB; two chunks of logits are '
    f'{8 * DOCUMENTS * CHUNK / 2**20:.0f} MiB, all logits of '
    f'{DOCUMENTS} documents {dense_mib:.0f} MiB'
  )
  lists, added = measure_call('lists', lambda: predict(scorer, split, space, K))
  measure_call('metrics', lambda: judge(lists, Criteria()))
  ratio = added / dense_mib
  verdict = 'ok' if ratio <= MEMORY_BOUND else 'MISSED'
  print(f'  lists / all logits {ratio:.2f} (bound {MEMORY_BOUND}): {verdict}')
  return ratio > MEMORY_BOUND


def measure_call(name: str, run: Callable[[], Any]) -> tuple[Any, float]:
  """Returns the result of `run` and the peak MiB that it adds."""
  reset_peak()
  before, start = memory('VmRSS') / 2**20, time.perf_counter()
  result = run()
  elapsed, added = time.perf_counter() - start, memory('VmHWM') / 2**20 - before
  print(
    f'  {name:8} {elapsed:5.1f} s, {added:4.0f} MiB in addition to '
    f'{before:.0f} MiB'
  )
  return result, added


if __name__ == '__main__':
  app.run(main)
