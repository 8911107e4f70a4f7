"""Labels that judging leaves out, against a corpus that never had them."""

import dataclasses
import io
import json

import numpy as np
import pytest
import scipy.sparse

from xjax.core.errors import ConfigError, DataError
from xjax.core.types import PAD, Batch, Ragged, ScoreKind
from xjax.data.schema import Label, LabelSpace, Split
from xjax.judge.criteria import Criteria
from xjax.judge.files.judged import JudgeFiles, read_judged
from xjax.judge.judge import document_lines, judge, tune_threshold
from xjax.judge.metrics.protocols import PROTOCOLS
from xjax.judge.predict import popularity, predict
from xjax.judge.predictions import Lists, Predictions
from xjax.select.recalls import MeasuredScorer

N, DEPTH = 40, 6
# Trained labels, then two held out, then one outside the label space.
COUNTS = np.array([90, 12, 60, 50, 0, 49, 3, 12, 100, 70, 0, 0, 0], np.int32)
L, TRAINED, HELD_OUT = 13, 10, 2
META = np.array([2, 8, 9, 11])  # one of these is held out
KEPT = np.setdiff1d(np.arange(L), META)


def space_of(left_out=()):
  return LabelSpace(
    labels=tuple(Label(f'l{i}') for i in range(L)),
    train_counts=COUNTS,
    n_train=100,
    n_trained=TRAINED,
    n_held_out=HELD_OUT,
    left_out_ids=[f'l{i}' for i in left_out],
  )


def small_space():
  """The space of a corpus that never had the labels."""
  return LabelSpace(
    labels=tuple(Label(f'l{i}') for i in KEPT),
    train_counts=COUNTS[KEPT],
    n_train=100,
    n_trained=TRAINED - 3,
    n_held_out=HELD_OUT - 1,
  )


class Table:
  """Scores drawn once for every document; ranked by sorting."""

  assigned_above, selected_by = None, 'exact'
  score_kind = ScoreKind.LOGIT

  def __init__(self, labels):
    rng = np.random.default_rng(0)
    scores_NL = rng.normal(size=(N, L)).astype(np.float32)[:, labels]
    self.n_labels = int((labels < TRAINED + HELD_OUT).sum())
    self.scores_NL = scores_NL[:, : self.n_labels]

  def topk(self, batch, k, weights=None, slices=(), allowed=None, sigmoid=None):
    n = self.n_labels
    ids, scores = [], []
    for mask in (np.ones(n, bool), *slices):
      inside = mask[:n] if allowed is None else mask[:n] & allowed[:n]
      part = np.where(inside, self.scores_NL[batch.doc_B], -np.inf)
      best = np.argsort(-part, axis=1, kind='stable')[:, :k]
      values = np.take_along_axis(part, best, 1)
      best = np.where(np.isneginf(values), PAD, best).astype(np.int32)
      fill = (0, 0), (0, k - best.shape[1])
      ids.append(np.pad(best, fill, constant_values=PAD))
      scores.append(np.pad(values, fill, constant_values=-np.inf))
    return np.stack(ids), np.stack(scores).astype(np.float32)


def gold_rows():
  rng = np.random.default_rng(1)
  return [
    sorted(rng.choice(L, rng.integers(0, 6), replace=False).tolist())
    for _ in range(N)
  ]


def split_of(labels):
  place = {label: i for i, label in enumerate(labels.tolist())}
  rows = [[place[x] for x in row if x in place] for row in gold_rows()]
  return Split('dev', [f'd{i}' for i in range(N)], Ragged.of(rows), [], '')


def batch():
  none = np.zeros((N, 1), np.int32)
  rows = np.arange(N, dtype=np.int32)
  return Batch(none, none[:, 0], none, np.ones(N, bool), rows)


def predicted(labels, space, depth=DEPTH):
  return predict(Table(labels), [batch()], split_of(labels), space, depth)


@pytest.fixture
def ours():
  """Predictions that leave out labels."""
  return predicted(np.arange(L), space_of(META))


@pytest.fixture
def theirs():
  """Predictions of a system that never had the labels."""
  return predicted(KEPT, small_space())


def same(ours, theirs):
  """Returns whether metrics are equal, up to the order of sums over labels."""
  if isinstance(ours, dict):
    return ours.keys() == theirs.keys() and all(
      same(value, theirs[name]) for name, value in ours.items()
    )
  if isinstance(ours, list):
    return len(ours) == len(theirs) and all(map(same, ours, theirs))
  return ours == (
    pytest.approx(theirs, rel=1e-12) if isinstance(ours, float) else theirs
  )


ALL = Criteria(ks=(1, 3, 5), protocols=tuple(PROTOCOLS.values()), replicates=20)


# Fewer protocols and no intervals, which take longer.
SOME = Criteria(ks=(1, 3, 5))


def test_no_list_has_a_left_out_label_and_no_list_is_shorter(ours, theirs):
  for name, lists in ours.lists.items():
    assert not np.isin(lists.ids, META).any(), name
    other = theirs.lists[name]
    np.testing.assert_array_equal(lists.scores, other.scores)
    kept = np.append(KEPT, PAD)
    np.testing.assert_array_equal(lists.ids, kept[other.ids])
  assert not np.isin(ours.gold.values, META).any()


def test_all_metrics_are_those_of_a_corpus_without_them(ours, theirs):
  exact = judge(ours.of_judged_labels(), ALL, 0.3)
  ours, theirs = (judge(p, ALL, 0.3) for p in (ours, theirs))
  assert exact == theirs and same(ours, theirs)
  assert any('[' in name for name in ours['xjax']['all'])  # bins as well


def test_thresholds_and_documents_are_so_too(ours, theirs):
  assert tune_threshold(ours) == tune_threshold(theirs)
  lines = [list(document_lines(p, SOME)) for p in (ours, theirs)]
  assert lines[0] == lines[1]


def test_the_popularity_prior_lists_other_labels():
  ours = popularity(space_of(META), split_of(np.arange(L)), DEPTH)
  theirs = popularity(small_space(), split_of(KEPT), DEPTH)
  assert same(judge(ours, SOME), judge(theirs, SOME))


def test_further_slices_lose_the_labels_too(ours, theirs):
  mask = np.zeros(L, bool)
  mask[[0, 1, 2, 3, 8]] = True
  criteria = dataclasses.replace(SOME, slices={'mine': mask})
  others = dataclasses.replace(SOME, slices={'mine': mask[KEPT]})
  assert same(judge(ours, criteria), judge(theirs, others))


def test_without_training_counts_it_is_the_same(ours, theirs):
  none = {'n_train': 0, 'held_out': np.zeros(0, np.int32)}
  ours, theirs = (
    dataclasses.replace(
      p,
      **none,
      train_counts=np.zeros_like(p.train_counts),
      lists={'all': p.lists['all']},
    )
    for p in (ours, theirs)
  )
  assert same(judge(ours, SOME), judge(theirs, SOME))


def test_they_can_be_dropped_from_the_labels(ours, theirs):
  cut = ours.of_judged_labels()
  assert tuple(cut.labels) == tuple(theirs.labels)
  assert cut.n_scored == theirs.n_scored
  np.testing.assert_array_equal(cut.held_out, theirs.held_out)
  np.testing.assert_array_equal(cut.gold.values, theirs.gold.values)
  for name, lists in cut.lists.items():
    np.testing.assert_array_equal(lists.ids, theirs.lists[name].ids)
  assert cut.of_judged_labels() is cut


def test_the_file_says_which_labels_were_left_out(ours, theirs, tmp_path):
  ours.save(tmp_path / 'p.npz')
  loaded = Predictions.load(tmp_path / 'p.npz')
  np.testing.assert_array_equal(loaded.left_out, META)
  assert tuple(loaded.labels) == tuple(f'l{i}' for i in range(L))
  assert same(judge(loaded, SOME), judge(theirs, SOME))
  theirs.save(tmp_path / 'q.npz')
  assert 'left_out/labels' not in np.load(tmp_path / 'q.npz').files
  assert not len(Predictions.load(tmp_path / 'q.npz').left_out)


@pytest.mark.parametrize(
  ('left_out', 'message'),
  [
    ([0], 'all/ids.*a label is outside the slice'),
    ([12], 'gold/indices.*a gold label is left out of judging'),
    ([L], 'left_out/labels.*not in 0..12'),
    ([2, 2], 'left_out/labels.*no label twice'),
    ([], 'left_out/labels.*at least one label'),
    (list(range(L)), 'left_out/labels.*no label is judged'),
  ],
)
def test_a_damaged_file_is_refused(ours, tmp_path, left_out, message):
  ours.save(tmp_path / 'p.npz')
  arrays = dict(np.load(tmp_path / 'p.npz'))
  for name in ('frequent', 'few', 'zero', 'held_out'):
    arrays.pop(f'{name}/ids'), arrays.pop(f'{name}/scores')
  arrays['left_out/labels'] = np.array(left_out, np.int32)
  buffer = io.BytesIO()
  np.savez(buffer, **arrays)
  (tmp_path / 'p.npz').write_bytes(buffer.getvalue())
  with pytest.raises(DataError, match=message):
    Predictions.load(tmp_path / 'p.npz')


def test_saved_lists_become_shorter_but_not_wrong(theirs):
  whole = predicted(np.arange(L), space_of())
  cut = whole.leaving_out(META)
  depth = cut.lists['all'].ids.shape[1]
  assert 1 <= depth < DEPTH  # the shortest full list decides
  np.testing.assert_array_equal(
    cut.lists['all'].scores, theirs.lists['all'].scores[:, :depth]
  )
  criteria = Criteria(ks=(1, depth), kinds=('P@k', 'nDCG@k', 'PSP@k'))
  slices = [judge(p, criteria)['xjax']['all'] for p in (cut, theirs)]
  assert slices[0] == slices[1] and slices[0]['P@1'] is not None
  # Lists with all labels lose nothing but the labels.
  whole = predicted(np.arange(L), space_of(), depth=20)
  other = predicted(KEPT, small_space(), depth=20)
  assert same(judge(whole.leaving_out(META), SOME), judge(other, SOME))


def test_lists_of_left_out_labels_alone_are_an_error():
  lists = Lists(np.array([[1], [2]], np.int32), np.zeros((2, 1), np.float32))
  part = Predictions(
    score_kind=ScoreKind.LOGIT,
    n_scored=4,
    n_train=0,
    doc_ids=('a', 'b'),
    labels=('w', 'x', 'y', 'z'),
    train_counts=np.zeros(4, np.int32),
    lists={'all': lists},
    gold=Ragged.of([[1, 3], [2]]),
  )
  with pytest.raises(DataError, match='only labels that are left out'):
    part.leaving_out(np.array([1]))
  with pytest.raises(DataError, match='no label is left to judge'):
    part.leaving_out(np.arange(4))
  cut = part.leaving_out(np.array([3]))
  assert [cut.gold[i].tolist() for i in range(2)] == [[1], [2]]


class Union(Table):
  """Joins the lists of several models, which may have 7 labels."""

  union_size = 7


def test_recalls_are_those_of_the_labels_that_are_left():
  shares = []
  for labels, space in ((np.arange(L), space_of(META)), (KEPT, small_space())):
    scorer = MeasuredScorer(Union(labels), space.masks())
    gold = split_of(labels).gold
    positives = gold.padded(np.arange(N), 6, PAD)
    rows = dataclasses.replace(batch(), positives_BP=positives)
    filters = {} if space.allowed is None else {'allowed': space.allowed}
    scorer.topk(rows, 3, tuple(space.masks().values()), **filters)
    shares.append(scorer.recalls())
  assert shares[0] == shares[1] and shares[0]['all']['union recall@7'] < 1


@pytest.fixture
def files(tmp_path):
  """Scores of another system, gold labels, and labels to leave out."""
  scores_NL = np.exp(Table(np.arange(L)).scores_NL)
  rows = gold_rows()
  gold = np.zeros((N, TRAINED + HELD_OUT), bool)
  for row, labels in enumerate(rows):
    gold[row, [x for x in labels if x < TRAINED + HELD_OUT]] = True
  kept = KEPT[KEPT < TRAINED + HELD_OUT]
  for name, columns in (('whole', slice(None)), ('small', kept)):
    save = scipy.sparse.save_npz
    part = scores_NL[:, columns]
    save(tmp_path / f'{name}.npz', scipy.sparse.csr_matrix(part))
    labels = scipy.sparse.csr_matrix(gold[:, columns].astype(float))
    save(tmp_path / f'{name}_gold.npz', labels)
  (tmp_path / 'meta.txt').write_text(''.join(f'{i}\n' for i in META))
  return tmp_path


def test_files_of_scores_are_judged_as_if_they_had_no_such_columns(files):
  ours, _ = read_judged(
    JudgeFiles(
      files / 'whole.npz',
      gold=files / 'whole_gold.npz',
      leave_out=str(files / 'meta.txt'),
    ),
    DEPTH,
  )
  theirs, _ = read_judged(
    JudgeFiles(files / 'small.npz', gold=files / 'small_gold.npz'), DEPTH
  )
  assert same(judge(ours, SOME), judge(theirs, SOME))
  assert ours.lists['all'].ids.shape == (N, DEPTH)  # lists are filled


def test_json_lines_are_cut(files):
  scores_NL = Table(np.arange(L)).scores_NL
  lines = []
  for row, scores in enumerate(scores_NL):
    best = np.argsort(-scores)[:8].tolist()
    labels = [{'id': str(i), 'score': float(scores[i])} for i in best]
    lines.append(json.dumps({'id': str(row), 'labels': labels}))
  (files / 'lists.jsonl').write_text('\n'.join(lines))
  parts = files / 'lists.jsonl', files / 'whole_gold.npz'
  out = str(files / 'meta.txt')
  ours, _ = read_judged(JudgeFiles(*parts, leave_out=out), DEPTH)
  names = np.array(ours.labels)
  assert not np.isin(names[ours.lists['all'].ids], META.astype(str)).any()
  assert 4 <= ours.lists['all'].ids.shape[1] < 8


def test_gold_of_a_file_is_cut_for_saved_predictions(ours, theirs, tmp_path):
  ours.save(tmp_path / 'p.npz')
  lines = (
    json.dumps({'id': f'd{i}', 'labels': [f'l{x}' for x in row]})
    for i, row in enumerate(gold_rows())
  )
  (tmp_path / 'gold.jsonl').write_text('\n'.join(lines))
  read, _ = read_judged(
    JudgeFiles(tmp_path / 'p.npz', gold=tmp_path / 'gold.jsonl')
  )
  assert same(judge(read, SOME), judge(theirs, SOME))


@pytest.mark.parametrize(
  ('text', 'error', 'message'),
  [
    ('3\n99\n', DataError, "has no label '99' .1 unknown label."),
    ('', DataError, 'no label in it'),
    ('3\n3\n', DataError, "duplicate label '3'"),
    (None, ConfigError, 'there is no such file'),
    (''.join(f'{i}\n' for i in range(12)), DataError, 'no label is left'),
  ],
)
def test_a_faulty_list_of_labels_is_an_error(files, text, error, message):
  path = files / 'list.txt'
  if text is not None:
    path.write_text(text)
  with pytest.raises(error, match=message):
    read_judged(
      JudgeFiles(
        files / 'whole.npz',
        gold=files / 'whole_gold.npz',
        leave_out=str(path),
      )
    )
