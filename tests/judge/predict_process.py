"""One of two processes that predict together; argv: port, id, file."""

import sys

import jax
from jax.sharding import AxisType
import numpy as np

from xjax.core.distributed import barrier
from xjax.core.processes import connection
from xjax.core.ranking import Lists
from xjax.core.types import Ragged, ScoreKind
from xjax.data.documents import Documents
from xjax.data.schema import Label, LabelSpace, Split
from xjax.judge.criteria import Criteria
from xjax.judge.judge import judge
from xjax.judge.predict import predict
from xjax.models.scorer import rank_blocks
from xjax.run.strategies.strategies import RankedDocuments, covering

N, L, ROWS = 11, 6, 3


class RowScorer:
  """Ranks label (document mod L) first; knows nothing of other processes."""

  score_kind = ScoreKind.LOGIT
  n_labels = L
  assigned_above = None
  selected_by = 'exact'

  def rank(self, documents, query):
    return rank_blocks(documents, query, 2 * ROWS, self._block)

  def _block(self, documents, query):
    lists = Lists.none(query.n_lists, len(documents), query.k)
    rows = [int(text) for text in documents]
    lists.ids_GNK[0, :, 0] = np.array(rows, int) % L
    lists.scores_GNK[0, :, 0] = np.array(rows, float) + 0.5
    return lists


class PlaceScorer(RowScorer):
  """Ranks label (place mod L) first, by places in what it is given."""

  def rank(self, documents, query):
    places = [str(place) for place in range(len(documents))]
    return super().rank(Documents.of(places), query)


def main(port, process, path):
  jax.config.update('jax_num_cpu_devices', 4)
  connection.start(True, f'localhost:{port}', 2, int(process))
  space = LabelSpace(
    tuple(Label(f'l{i}') for i in range(L)), np.full(L, 60, np.int32), 99, L
  )
  gold = Ragged.of([[i % L] if i % 3 else [] for i in range(N)])
  split = Split(
    'dev', [f'd{i}' for i in range(N)], gold, [str(i) for i in range(N)], ''
  )
  mesh = jax.make_mesh(
    (2, 4), ('data', 'label'), axis_types=(AxisType.Auto,) * 2
  )
  with jax.set_mesh(mesh):
    got = predict(RowScorer(), split, space, 2)
    # Judging is each process's own affair: only one of them does it.
    if int(process) == 1:
      assert judge(got, Criteria((1,)))['xjax']['all']['P@1'] == 1
    # The order is the same for both, and so is what covers the labels.
    documents = RankedDocuments(PlaceScorer(), Documents.of_split(split))
    covered = covering(documents, 2)
  np.savez(
    path,
    ids=got.lists['all'].ids,
    scores=got.lists['all'].scores,
    covered=covered.ids_NK,
  )
  barrier('done')


if __name__ == '__main__':
  main(*sys.argv[1:])
