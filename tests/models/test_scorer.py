"""Documents are ranked block by block, and divided among processes."""

import numpy as np

from xjax.core.mesh_config import ProcessShare
from xjax.core.ranking import Lists, Query
from xjax.core.types import PAD, Ragged, ScoreKind
from xjax.data.documents import Documents
from xjax.models import scorer as scorers
from xjax.models.scorer import Scorer, documents_for, rank_blocks

TEXTS = [str(row) for row in range(5)]
ALLOWED = np.arange(20).reshape(5, 4) % 3 > 0


class Rows(Scorer):
  """Lists the number of a document, and how many labels it may have."""

  n_labels, score_kind = 9, ScoreKind.LOGIT

  def __init__(self):
    self.sizes = []

  def rank(self, documents, query):
    return rank_blocks(documents, query, 2, self.rank_block)

  def rank_block(self, documents, query):
    self.sizes.append(len(documents))
    numbers = np.array(list(map(int, documents)), np.int32)
    counts = np.zeros(len(documents), np.int32)
    if query.allowed is not None:
      counts = query.allowed.sum(axis=-1, dtype=np.int32)
    ids = np.stack([numbers, counts, counts], axis=-1)[None]
    kept = {}
    if query.measures(documents.gold):
      kept['step'] = documents.gold.lengths[None].astype(np.int32)
    return Lists(ids, ids.astype(np.float32), kept)


def test_blocks_are_ranked_one_after_the_other():
  scorer, seen = Rows(), []
  gold = Ragged.of([[0] * row for row in range(5)])
  query = Query(2, allowed=ALLOWED, measured=0, on_block=seen.append)
  lists = scorer.rank(Documents(TEXTS, gold), query)
  assert scorer.sizes == seen == [2, 2, 1]
  assert lists.ids_GNK[0, :, 0].tolist() == [0, 1, 2, 3, 4]
  assert lists.ids_GNK[0, :, 1].tolist() == ALLOWED.sum(axis=1).tolist()
  assert lists.ids_GNK.shape == (1, 5, 2)
  assert lists.kept['step'].tolist() == [[0, 1, 2, 3, 4]]
  nothing = scorer.rank(Documents([]), Query(2))
  assert nothing.ids_GNK.shape == (1, 0, 2)


def test_processes_divide_each_block(monkeypatch):
  """Checks what two processes would put into the lists."""
  every = Rows().rank(Documents(TEXTS), Query(2, allowed=ALLOWED))
  rows_of, found = [], Lists.none(1, 5, 2)
  put = Lists.put

  def watched(self, rows, part):
    rows_of[-1].append(rows.tolist())
    put(found, rows, part)

  monkeypatch.setattr(Lists, 'put', watched)
  for number in range(2):
    share = ProcessShare((number,), 2)
    monkeypatch.setattr(scorers, 'own_share', lambda share=share: share)
    rows_of.append([])
    Rows().rank(Documents(TEXTS), Query(2, allowed=ALLOWED))
  assert rows_of == [[[0], [2], [4]], [[1], [3], [PAD]]]
  np.testing.assert_array_equal(found.ids_GNK, every.ids_GNK)
  np.testing.assert_array_equal(found.scores_GNK, every.scores_GNK)


def test_a_model_gets_vectors_only_if_it_reads_them():
  documents = Documents(TEXTS, vectors=object())
  scorer = Rows()
  assert documents_for(scorer, documents).vectors is None
  scorer.reads_vectors = True
  assert documents_for(scorer, documents) is documents
