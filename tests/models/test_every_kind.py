"""What every kind of model promises: one battery of tests for all of them."""

import dataclasses
import json
import shutil
import subprocess
import sys

import numpy as np
import pytest

from tests.fixtures.kills import assert_same_dev, kill_training
from tests.fixtures.kinds import EXACT, KINDS, NEURAL
from tests.fixtures.sparse_runs import contents
import xjax
from xjax.core.errors import ConfigError, DataError, Preempted
from xjax.core.ranking import Query, RankWeights
from xjax.core.types import AS_LOGITS, PAD, ScoreKind
from xjax.data.documents import Documents
from xjax.data.load import load_corpus
from xjax.data.schema import Label
from xjax.judge.predictions import Predictions
from xjax.models.contract import SCORES_NAMES, load_config
from xjax.report.terminal.run_summary import run_summary
from xjax.run.evaluate_split import evaluate_split
from xjax.run.fit import fit
from xjax.run.open_run import open_run
from xjax.run.serve.service import Service
from xjax.train.workdir import Workdir

K = 7
MARKS = {'stack': (pytest.mark.lightgbm,)}
EVERY = pytest.mark.parametrize(
  'kind', [pytest.param(x, marks=MARKS.get(x, ())) for x in KINDS]
)
FRESH = 'names', 'prototypes', 'joined', 'neural', 'stack'
KILLED = 'prototypes', 'tree', 'neural', 'stack'  # also by the quick tests
SLOW = (pytest.mark.thorough,)


@pytest.fixture(scope='module')
def opened(fitted):
  """A function that opens the run of a kind, and returns documents of dev."""
  runs = {}

  def result(kind):
    if kind not in runs:
      runs[kind] = open_run(fitted(kind).workdir)
    run = runs[kind]
    split = load_corpus(run.config.data, run.config.seed).split('dev')
    return run, Documents.of([split.documents[row] for row in range(12)])

  return result


@dataclasses.dataclass
class Twin:
  """All scores of documents, one label at a time, and brute-force lists."""

  scores_NL: np.ndarray

  @classmethod
  def of(cls, scorer, documents):
    n = scorer.n_labels
    columns = []
    for first in range(0, n, 16):
      labels = range(first, min(first + 16, n))
      alone = tuple(np.arange(n) == label for label in labels)
      lists = scorer.rank(documents, Query(1, alone))
      for label, ids_NK in zip(labels, lists.ids_GNK[1:], strict=True):
        assert np.isin(ids_NK, [label, PAD]).all()
      columns += [*lists.scores_GNK[1:, :, 0]]
    return cls(np.stack(columns, axis=1))

  def lists(self, query):
    """The scores by which the lists of a query rank labels, [G, N, L]."""
    keys_NL = self.scores_NL.astype(np.float64)
    if query.weights is not None:
      weights, (a, b) = query.weights
      listed_NL = keys_NL > -np.inf
      z_NL = a * np.where(listed_NL, keys_NL, 0) + b
      keys_NL = np.log(weights) - np.logaddexp(0, -z_NL)
      keys_NL = np.where(listed_NL, keys_NL, -np.inf)
    if query.allowed is not None:
      keys_NL = np.where(query.allowed, keys_NL, -np.inf)
    masks = np.stack([np.ones(keys_NL.shape[1], bool), *query.slices])
    return np.where(masks[:, None], keys_NL, -np.inf)


def queries(scorer, n):
  n_labels = scorer.n_labels
  # Only margins need another sigmoid than that of logits.
  is_margin = scorer.score_kind is ScoreKind.MARGIN
  sigmoid = (1.5, -0.5) if is_margin else AS_LOGITS
  rng = np.random.default_rng(0)
  some = rng.random(n_labels) < 0.6
  masks = np.arange(n_labels) % 2 == 0, np.arange(n_labels) < n_labels // 3
  each = rng.random((n, n_labels)) < 0.5
  weights = RankWeights(rng.uniform(0.5, 2, n_labels), sigmoid)
  yield Query(K, masks)
  yield Query(K, masks, allowed=each)
  yield Query(n_labels + 3, masks, some, weights)


@EVERY
def test_lists_are_those_of_brute_force(kind, opened):
  run, documents = opened(kind)
  scorer = run.scorer
  twin = Twin.of(scorer, documents)
  for query in queries(scorer, len(documents)):
    lists = scorer.rank(documents, query)
    ids, scores = lists.ids_GNK, lists.scores_GNK
    real = ids != PAD
    wanted = twin.lists(query)
    listed = np.take_along_axis(wanted, np.where(real, ids, 0), axis=2)
    # Each listed label has the score that it has alone.
    np.testing.assert_allclose(scores[real], listed[real], rtol=2e-5, atol=2e-5)
    assert (scores[~real] == -np.inf).all()
    # Lists are sorted by score, then by index, and have no label twice.
    order = np.lexsort((ids, -scores), axis=2)
    tail = np.where(real, np.arange(ids.shape[2]), ids.shape[2])
    assert (np.sort(tail, axis=2) == tail).all()
    sorted_ids = np.take_along_axis(ids, order, axis=2)
    assert (sorted_ids[real] == ids[real]).all()
    if kind in EXACT and query.weights is None:
      best = np.sort(wanted, axis=2)[:, :, ::-1][:, :, : ids.shape[2]]
      got = scores[:, :, : best.shape[2]]
      np.testing.assert_allclose(got, best, rtol=2e-5, atol=2e-5)


@EVERY
def test_blocks_and_parts_change_nothing(kind, opened):
  run, documents = opened(kind)
  query = Query(K, (np.arange(run.n_labels) % 3 == 0,))
  whole = run.scorer.rank(documents, query)
  for rows in ([5], [11, 0, 3]):
    part = run.scorer.rank(documents.part(np.array(rows)), query)
    want_ids, want = whole.ids_GNK[:, rows], whole.scores_GNK[:, rows]
    if kind in NEURAL:
      np.testing.assert_allclose(part.scores_GNK, want, rtol=1e-4, atol=1e-4)
    else:
      np.testing.assert_array_equal(part.ids_GNK, want_ids)
      np.testing.assert_array_equal(part.scores_GNK, want)


@EVERY
def test_what_was_judged_is_predicted_and_judged_again(
  kind, fitted, opened, tmp_path
):
  run, documents = opened(kind)
  folder = shutil.copytree(fitted(kind).workdir, tmp_path / 'run')
  path = folder / 'eval' / 'dev'
  judged = Predictions.load(path / 'predictions.npz').lists['all']
  lists = run.lists(documents, judged.ids.shape[1])
  some = judged.scores[: len(documents)]
  if kind in NEURAL:
    np.testing.assert_allclose(lists.scores, some, rtol=1e-4, atol=1e-4)
  else:
    np.testing.assert_array_equal(lists.ids, judged.ids[: len(documents)])
    np.testing.assert_array_equal(lists.scores, some)
  texts = [document.text() for document in documents]
  assert run.predict(texts, 3) == run.predict(list(documents), 3)
  assert run.predict([], 3) == []
  assert len(run.predict(['', '?'], 3)) == 2
  before = (path / 'metrics.json').read_bytes()
  (path / 'metrics.json').unlink()
  evaluate_split(folder, 'dev')
  assert (path / 'metrics.json').read_bytes() == before


@EVERY
def test_a_second_start_changes_nothing(kind, fitted, tmp_path):
  result = fitted(kind)
  folder = shutil.copytree(result.workdir, tmp_path / 'run')
  before, config = contents(folder), load_config(folder / 'config.json')
  again = fit(config, folder)
  assert contents(folder) == before
  assert again.metrics == result.metrics
  text = run_summary(again).replace(str(folder), str(result.workdir))
  assert text == run_summary(result)
  with pytest.raises(ConfigError, match='seed: 0 -> 1'):
    fit(dataclasses.replace(config, seed=1), folder)
  assert contents(folder) == before


@EVERY
def test_damaged_and_missing_files_are_named(kind, fitted, tmp_path):
  xjax.load(fitted(kind).workdir).save(tmp_path / 'run')
  paths = [
    tmp_path / 'run' / path
    for path in contents(tmp_path / 'run')
    if {'features', 'model'} & {*path.split('/')[:-1]}
    and not path.endswith('search.json')  # only a resumed run reads it
  ]
  for path in paths:
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(DataError, match=path.name):
      open_run(tmp_path / 'run')
    path.unlink()
    with pytest.raises(DataError, match=path.name):
      open_run(tmp_path / 'run')
    path.write_bytes(whole)
  assert bool(paths) == (kind != 'exact_match')
  open_run(tmp_path / 'run')


@EVERY
def test_labels_that_are_left_out_are_in_no_list(kind, opened):
  run, documents = opened(kind)
  listed = run.lists(documents, K).ids
  out = np.unique(listed[listed != PAD])[:3]
  ids = [run.space.ids[label] for label in out.tolist()]
  space = dataclasses.replace(run.space, left_out_ids=ids)
  lists = dataclasses.replace(run, space=space).lists(documents, K)
  assert not np.isin(lists.ids, out).any()


@EVERY
def test_words_explain_or_a_reason_is_given(kind, opened):
  run, documents = opened(kind)
  texts = list(documents)[:3]
  if reason := run.scorer.unexplained:
    with pytest.raises(ConfigError, match='cannot be explained') as error:
      run.explain(texts, 3, 2)
    assert str(error.value) == reason
    return
  plain = run.predict(texts, 3)
  explained = run.explain(texts, 3, 2)
  assert [[x[:3] for x in row] for row in explained] == [
    [tuple(x) for x in row] for row in plain
  ]
  for row, document in zip(explained, texts):
    for label in row:
      assert len(label.why) <= 2
      for word in label.why:
        start, end = word.at
        assert document.zones[word.zone][start:end] == word.word
  assert any(label.why for row in explained for label in row)


@EVERY
def test_new_labels_are_scored_by_name_or_a_reason_is_given(kind, opened):
  run, documents = opened(kind)
  name = documents[0].text().split()[0]
  labels = [Label('new', name)]
  if reason := run.scorer.fixed_labels:
    with pytest.raises(ConfigError, match='cannot') as error:
      run.with_labels(labels)
    assert str(error.value) == reason
    return
  wider = run.with_labels(labels)
  assert wider.n_labels == run.n_labels + 1
  new = run.space.n_inside
  only = np.arange(wider.n_labels) == new
  lists = wider.scorer.rank(documents, Query(1, allowed=only))
  assert lists.ids_GNK[0, 0, 0] == new
  # The other labels keep their scores, but in a stack.
  if kind != 'stack':
    before = run.scorer.rank(documents, Query(K))
    known = Query(K, allowed=~only)
    after = wider.scorer.rank(documents, known)
    np.testing.assert_allclose(
      before.scores_GNK, after.scores_GNK, rtol=1e-4, atol=1e-5
    )


@pytest.mark.parametrize(
  'kind',
  [
    pytest.param(x, marks=MARKS.get(x, SLOW * (x not in KILLED))) for x in KINDS
  ],
)
def test_a_killed_run_ends_where_an_uninterrupted_one_does(
  kind, fitted, tmp_path, monkeypatch
):
  result = fitted(kind)
  config = xjax.load(result.workdir).config
  recording, written, kills = Workdir.recording, [], []

  def killed(folder, path):
    written.append(path)
    if len(written) > 2 * len(kills):  # each start goes further
      kills.append(path)
      written.clear()
      raise Preempted('killed')
    return recording(folder, path)

  with monkeypatch.context() as patch:
    patch.setattr(Workdir, 'recording', killed)
    if kind in ('neural', 'reranked'):
      kill_training(patch)
    again = None
    while again is None:
      try:
        again = fit(config, tmp_path / 'run')
      except Preempted:
        if kind in ('neural', 'reranked'):
          patch.undo()
  assert len(kills) > 2 or kind in ('neural', 'reranked')
  assert_same_dev(again, result)


@pytest.mark.lightgbm
def test_a_model_is_the_same_in_a_fresh_process(fitted, tmp_path):
  texts = ['Puma sa funu mesi teba malu', 'Sena pe folo tulo 2002']
  wanted = {}
  for kind in FRESH:
    model = xjax.load(fitted(kind).workdir)
    model.save(tmp_path / kind)
    wanted[kind] = [[tuple(x) for x in row] for row in model.predict(texts, 4)]
  code = (
    'import json, sys, xjax\n'
    'kinds, texts, folder = json.load(sys.stdin)\n'
    'print(json.dumps({kind: xjax.load(f"{folder}/{kind}").predict(texts, 4)'
    ' for kind in kinds}))'
  )
  asked = json.dumps([FRESH, texts, str(tmp_path)])
  done = subprocess.run(
    [sys.executable, '-c', code],
    input=asked,
    capture_output=True,
    text=True,
    check=True,
  )
  answers = json.loads(done.stdout.splitlines()[-1])
  for kind, rows in wanted.items():
    for row, answer in zip(rows, answers[kind], strict=True):
      assert [x[:2] for x in row] == [tuple(x[:2]) for x in answer]
      scores = [x[2] for x in row], [x[2] for x in answer]
      np.testing.assert_allclose(*scores, rtol=1e-5)


@EVERY
def test_it_is_served(kind, opened):
  run, documents = opened(kind)
  service = Service(run)
  texts = [document.text() for document in list(documents)[:2]]
  body = json.dumps({'documents': texts, 'k': 3}).encode()
  request = service.parse(body, 10)
  asked = [(request, document) for document in request.documents]
  answers = list(map(json.loads, service.answer(asked)))
  wanted = run.predict(texts, 3)
  for answer, labels in zip(answers, wanted, strict=True):
    assert [x['id'] for x in answer['labels']] == [x.id for x in labels]


@EVERY
def test_unseen_labels_have_figures_if_the_model_knows_them(
  kind, fitted, opened
):
  run, _ = opened(kind)
  known = run.config.model.about_unseen(run.config) == SCORES_NAMES
  zero = fitted(kind).metrics['dev']['xjax']['zero']
  assert zero['n_docs'] > 0 and run.ranks_unseen == known
  assert {zero[x] is not None for x in ('RP@5', 'macro-F1@5')} == {known}
