"""Training documents are divided into folds that hide some labels."""

import dataclasses

import numpy as np
import pytest
from scipy import sparse

from xjax.core.types import Ragged
from xjax.data.documents import SparseDocuments
from xjax.data.folds import make_folds, select_documents
from xjax.data.formats.corpus_builder import SourceCorpus
from xjax.data.formats.data_config import DataConfig
from xjax.data.load import build_corpus
from xjax.data.schema import Corpus, Document, Label, LabelSpace, Split

N, FOLDS = 50, 4
TRAINED, HELD_OUT, NEW, OUTSIDE = 20, 3, 1, 2
L = TRAINED + HELD_OUT + NEW + OUTSIDE
UNSEEN = 4  # trained labels without a training document


def small_corpus(seed=0, unseen=UNSEEN):
  """A corpus of texts; gold has outside labels too."""
  rng = np.random.default_rng(seed)
  known = [*range(unseen, TRAINED), L - 2, L - 1]
  rows = [np.sort(rng.choice(known, 4, replace=False)) for _ in range(N)]
  gold = Ragged.of(rows)
  counts = np.bincount(gold.values, minlength=L)
  counts[TRAINED:] = 0
  labels = [Label(f'{x}', f'name {x}', (), (f'{x // 2}',)) for x in range(L)]
  space = LabelSpace(labels, counts.astype(np.int32), N, TRAINED, HELD_OUT, NEW)
  ids = [f'd{row}' for row in range(N)]
  documents = [Document(id_, {'text': f'text of {id_}'}) for id_ in ids]
  train = Split('train', ids, gold, documents, 'digest')
  return Corpus(space, {'train': train, 'dev': train}, 'fingerprint')


@pytest.fixture(scope='module')
def corpus():
  return small_corpus()


def folds_of(corpus, n=FOLDS, share=0.2, seed=5):
  return make_folds(corpus, n, share, seed)


def same(fold, other):
  arrays = zip(dataclasses.astuple(fold), dataclasses.astuple(other))
  return all(np.array_equal(a, b) for a, b in arrays)


@pytest.mark.parametrize('n', [2, 4, 7])
def test_each_document_is_in_one_fold(corpus, n):
  folds = folds_of(corpus, n)
  assert [fold.number for fold in folds] == list(range(n))
  rows = np.concatenate([fold.rows for fold in folds])
  assert sorted(rows.tolist()) == list(range(N))
  sizes = [len(fold.rows) for fold in folds]
  assert max(sizes) - min(sizes) <= 1


def test_the_order_is_trained_then_hidden_then_the_other_labels(corpus):
  for fold in folds_of(corpus):
    hidden = set(fold.hidden.tolist())
    assert len(hidden) == 4 and max(hidden) < TRAINED
    assert (np.diff(fold.hidden) > 0).all()
    trained = [x for x in range(TRAINED) if x not in hidden]
    others = range(TRAINED, L)
    assert fold.order.tolist() == [*trained, *sorted(hidden), *others]


def test_the_corpus_of_a_fold_has_the_other_documents(corpus):
  split = corpus.splits['train']
  for fold in folds_of(corpus):
    part = fold.corpus(corpus).splits['train']
    ids = [split.ids[row] for row in range(N) if row not in fold.rows]
    assert set(fold.corpus(corpus).splits) == {'train'}
    assert list(part.ids) == [document.id for document in part.documents] == ids
    assert len(part) == len(part.gold) == N - len(fold.rows)


def test_gold_of_a_fold_has_only_labels_that_are_trained_there(corpus):
  gold = corpus.trained_gold
  for fold in folds_of(corpus):
    part = fold.corpus(corpus).splits['train']
    kept = [row for row in range(N) if row not in fold.rows]
    for row, labels in zip(kept, part.gold, strict=True):
      wanted = set(gold[row].tolist()) - set(fold.hidden.tolist())
      assert set(fold.order[labels].tolist()) == wanted
      assert (np.diff(labels) > 0).all()


def test_hidden_labels_are_held_out(corpus):
  for fold in folds_of(corpus):
    space = fold.corpus(corpus).label_space
    before = corpus.label_space.labels
    assert list(space.labels) == [before[x] for x in fold.order]
    assert space.n_trained == TRAINED - len(fold.hidden)
    assert space.n_held_out == HELD_OUT + len(fold.hidden)
    assert (space.n_new, space.n_outside) == (NEW, OUTSIDE)
    assert set(fold.order[space.held_out]) >= set(fold.hidden)
    gold = fold.corpus(corpus).splits['train'].gold
    counts = np.bincount(gold.values, minlength=L)
    np.testing.assert_array_equal(space.train_counts, counts)
    assert space.n_train == len(gold)
    assert not space.train_counts[space.n_trained :].any()


def test_folds_depend_on_the_seed_alone(corpus):
  folds, again = folds_of(corpus), folds_of(small_corpus())
  assert all(map(same, folds, again))
  for fold, copy in zip(folds, again):
    one, two = fold.corpus(corpus), copy.corpus(small_corpus())
    assert one.fingerprint == two.fingerprint
  others = folds_of(corpus, seed=6)
  assert not any(map(same, folds, others))


def test_each_fold_has_a_corpus_of_its_own(corpus):
  corpora = [fold.corpus(corpus) for fold in folds_of(corpus)]
  digests = {part.splits['train'].digest for part in corpora}
  assert len(digests) == len({x.fingerprint for x in corpora}) == FOLDS
  assert corpus.fingerprint not in {x.fingerprint for x in corpora}
  hidden = {tuple(fold.hidden.tolist()) for fold in folds_of(corpus)}
  assert len(hidden) > 1


@pytest.mark.parametrize(
  'unseen, share, n_hidden',
  [(4, 0, 4), (0, 0, 0), (2, 0, 2), (4, 0.5, 8), (4, 0.9, 8), (4, 0.01, 0)],
)
def test_labels_without_documents_decide_how_many_are_hidden(
  unseen, share, n_hidden
):
  """At most half of the labels with documents are hidden."""
  folds = folds_of(small_corpus(unseen=unseen), share=share)
  assert {len(fold.hidden) for fold in folds} == {n_hidden}


def test_at_least_two_percent_are_hidden():
  """Of 60 labels, all of which training documents have."""
  ids = tuple(f'l{x}' for x in range(60))
  documents = [
    Document(f'd{x}', {'text': f'x {x}'}, (ids[x % 60],)) for x in range(600)
  ]
  raw = SourceCorpus.of('it', (), {'train': documents})
  folds = folds_of(build_corpus(raw, DataConfig(), 0), share=0)
  assert {len(fold.hidden) for fold in folds} == {round(0.02 * 60)}


def test_frequent_labels_are_not_hidden(corpus):
  counts = corpus.label_space.train_counts.copy()
  counts[4:12] = 201
  space = dataclasses.replace(corpus.label_space, train_counts=counts)
  frequent = dataclasses.replace(corpus, label_space=space)
  for fold in folds_of(frequent):
    assert len(fold.hidden) == 4 and min(fold.hidden) >= 12


def test_sparse_documents_keep_their_features_and_ids(corpus):
  split = corpus.splits['train']
  rows = sparse.csr_array(np.arange(2 * N, dtype=np.float32).reshape(N, 2))
  # The documents are the odd rows of a file.
  whole = sparse.csr_array(np.repeat(rows.toarray(), 2, axis=0))
  labels = Ragged.of([(row // 2, 7) for row in range(2 * N)])
  documents = SparseDocuments('f', whole, labels).part(1 + 2 * np.arange(N))
  assert documents.ids[:2] == ('1', '3')
  split = dataclasses.replace(split, ids=documents.ids, documents=documents)
  sparse_corpus = dataclasses.replace(corpus, splits={'train': split})
  for fold in folds_of(corpus):
    part = fold.corpus(sparse_corpus).splits['train']
    kept = [row for row in range(N) if row not in fold.rows]
    assert not (part.documents.rows - rows[kept]).nnz
    assert part.documents.ids == tuple(part.ids)
    assert [document.id for document in part.documents] == list(part.ids)
    assert part.documents[0].labels == (f'{kept[0]}', '7')


def test_parts_of_texts_share_features(corpus):
  split = corpus.splits['train']
  gold = Ragged.of([[1], [2]])
  part = select_documents(split, np.array([3, 1]), gold)
  assert [document.id for document in part.documents] == ['d3', 'd1']
  assert list(part.ids) == ['d3', 'd1'] and part.gold is gold
  assert part.digest != split.digest
  again = select_documents(part, np.array([1]), Ragged.of([[2]]))
  assert again.documents.memory is part.documents.memory


def test_equal_texts_are_in_one_fold(corpus):
  split = corpus.splits['train']
  texts = np.arange(N, dtype=np.uint64) // 5
  copies = dataclasses.replace(split, text_digests=texts)
  whole = dataclasses.replace(corpus, splits={'train': copies})
  for fold in folds_of(whole):
    inside = set(fold.rows.tolist())
    for first in range(5, N, 5):  # digest 0 stands for empty texts
      assert len(inside & set(range(first, first + 5))) in (0, 5)


def test_nothing_is_hidden_without_a_share(corpus):
  assert not any(len(fold.hidden) for fold in folds_of(corpus, share=None))
