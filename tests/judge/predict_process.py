"""One of two processes that predict together; argv: port, id, file."""

import sys

import jax
from jax.sharding import AxisType
import numpy as np

from xjax.core.distributed import barrier
from xjax.core.processes import connection
from xjax.core.types import PAD, Batch, Ragged, ScoreKind
from xjax.data.schema import Label, LabelSpace, Split
from xjax.judge.criteria import Criteria
from xjax.judge.judge import judge
from xjax.judge.predict import predict
from xjax.run.strategies.ranked_documents import RankedDocuments
from xjax.run.strategies.strategies import CoverageStrategy, choose

N, L, ROWS = 11, 6, 3


class RowScorer:
  """Ranks label (document mod L) first; knows nothing of other processes."""

  score_kind = ScoreKind.LOGIT
  n_labels = L
  assigned_above = None
  selected_by = 'exact'

  def topk(self, batch, k, weights=None, slices=()):
    shape = (1 + len(slices), len(batch.doc_B), k)
    ids = np.full(shape, PAD, np.int32)
    scores = np.full(shape, -np.inf, np.float32)
    ids[0, :, 0], scores[0, :, 0] = batch.doc_B % L, batch.doc_B + 0.5
    return ids, scores


def batches(process):
  for start in range(0, N, 2 * ROWS):
    rows = start + process * ROWS + np.arange(ROWS)
    doc_B = np.where(rows < N, rows, PAD).astype(np.int32)
    none = np.zeros((ROWS, 1), np.int32)
    yield Batch(none, none[:, 0], none, doc_B != PAD, doc_B)


def batches_of(process):
  def some(rows_N):
    for start in range(0, len(rows_N), 2 * ROWS):
      places = start + process * ROWS + np.arange(ROWS)
      real = places < len(rows_N)
      doc_B = np.where(real, places, PAD).astype(np.int32)
      none = np.zeros((ROWS, 1), np.int32)
      yield Batch(none, none[:, 0], none, real, doc_B)

  return some


def main(port, process, path):
  jax.config.update('jax_num_cpu_devices', 4)
  connection.start(True, f'localhost:{port}', 2, int(process))
  space = LabelSpace(
    tuple(Label(f'l{i}') for i in range(L)), np.full(L, 60, np.int32), 99, L
  )
  gold = Ragged.of([[i % L] if i % 3 else [] for i in range(N)])
  split = Split('dev', [f'd{i}' for i in range(N)], gold, [], '')
  mesh = jax.make_mesh(
    (2, 4), ('data', 'label'), axis_types=(AxisType.Auto,) * 2
  )
  with jax.set_mesh(mesh):
    got = predict(RowScorer(), batches(int(process)), split, space, 2)
    # Judging is each process's own affair: only one of them does it.
    if int(process) == 1:
      assert judge(got, Criteria((1,)))['xjax']['all']['P@1'] == 1
    # The order is the same for both, and so is what covers the labels.
    documents = RankedDocuments(RowScorer(), batches_of(int(process)), N)
    covered = choose(CoverageStrategy(), documents, 2)
  np.savez(
    path,
    ids=got.lists['all'].ids,
    scores=got.lists['all'].scores,
    covered=covered.ids_NK,
  )
  barrier('done')


if __name__ == '__main__':
  main(*sys.argv[1:])
