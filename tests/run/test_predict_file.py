"""Tagging files: which documents are judged, what is written and removed."""

import dataclasses
import json

import numpy as np
import pytest

from tests.run import tagging
from tests.run.tagging import contents, read_rows, rows_of, write_rows
from xjax.core.atomic import WriteError
from xjax.core.errors import ConfigError, DataError
from xjax.data.load import load_corpus
from xjax.data.schema import Document, Label, LabelSpace
from xjax.judge.calibration import shown_probabilities
from xjax.judge.criteria import Criteria
from xjax.judge.files.judge_files import JudgeFiles, read_judged
from xjax.judge.judge import judge
from xjax.judge.label_lists import LabelLists
from xjax.judge.predictions import Predictions
from xjax.report.page.explanation_page import explanation_page
from xjax.run.predict_file import labelled_split, predict_file
from xjax.run.strategies.strategy_request import StrategyKind, StrategyRequest


@pytest.fixture(scope='module')
def rows(config):
  """Six documents of dev, with their labels."""
  split = load_corpus(config.data, config.seed).split('dev')
  return rows_of(split.documents[row] for row in range(6))


@pytest.fixture
def tag(finished, tmp_path):
  """Tags rows; returns the paths of X.jsonl, X.npz and X.metrics.json."""

  def run(rows, k=3, **options):
    out = tagging.tag(finished.workdir, tmp_path, rows, k, **options)
    return [out, out.with_suffix('.npz'), out.with_suffix('.metrics.json')]

  return run


def without_labels(row):
  return {name: value for name, value in row.items() if name != 'labels'}


def test_all_have_labels(tag, rows, finished):
  lines, npz, metrics = tag(rows)
  values = json.loads(metrics.read_text())
  threshold = finished.metrics['dev']['xjax']['all']['threshold-tuned']
  predictions = Predictions.load(npz)
  shown_NK = shown_probabilities(predictions, finished.calibration)
  assert values == judge(predictions, Criteria(), threshold, shown_NK)
  assert values['xjax']['all']['micro-F1-tuned'] is not None
  assert [row['id'] for row in read_rows(lines)] == [row['id'] for row in rows]
  # The next input has no labels, so the metrics of this one go.
  assert tag([without_labels(row) for row in rows])[0].exists()
  assert not metrics.exists() and Predictions.load(npz).gold is None


def written(path):
  return [row['labels'] for row in read_rows(path)]


def test_a_threshold_decides_which_labels_are_written(tag, rows, finished):
  every, *files = tag(rows, k=16)
  all_labels = written(every)
  before = [path.read_bytes() for path in files]
  middle = sorted(label['score'] for ids in all_labels for label in ids)[40]
  above = [[x for x in ids if x['score'] >= middle] for ids in all_labels]
  assert written(tag(rows, k=16, threshold=str(middle))[0]) == above
  # The lists and metrics do not depend on the threshold.
  assert [path.read_bytes() for path in files] == before
  first = [ids[:1] for ids in above]
  assert written(tag(rows, k=1, threshold=str(middle))[0]) == first
  tuned = written(tag(rows, k=16, threshold='tuned')[0])
  metrics = json.loads(files[1].read_text())['xjax']['all']
  gold = [set(row['labels']) for row in rows]
  hits = sum(x['id'] in ids for row, ids in zip(tuned, gold) for x in row)
  sizes = sum(map(len, tuned)) + sum(map(len, gold))
  assert metrics['micro-F1-tuned'] == pytest.approx(2 * hits / sizes)


def test_a_threshold_and_a_strategy_exclude_each_other(tag, rows):
  request = StrategyRequest(StrategyKind.PROPENSITY, 3)
  with pytest.raises(ConfigError, match='only one of --threshold and --strat'):
    tag(rows, strategy=request, threshold='0.5')


def test_documents_without_labels_are_not_judged(tag, rows, finished):
  labelled = Predictions.load(tag(rows[:3])[1])
  some = [*map(without_labels, rows[3:]), *rows[:3]]
  lines, npz, metrics = tag(some)
  assert lines.read_text().count('\n') == 6
  predictions = Predictions.load(npz)
  assert len(predictions) == 6
  # An array of gold cannot tell unknown from none.
  assert predictions.gold is None
  # The lists of this run: scores may have another last bit in another batch.
  lists = {
    name: LabelLists(each.ids[3:], each.scores[3:])
    for name, each in predictions.lists.items()
  }
  for name, alone in labelled.lists.items():
    np.testing.assert_array_equal(lists[name].ids, alone.ids)
    np.testing.assert_allclose(lists[name].scores, alone.scores, rtol=1e-5)
  judged = dataclasses.replace(labelled, lists=lists)
  threshold = finished.metrics['dev']['xjax']['all']['threshold-tuned']
  shown_NK = shown_probabilities(judged, finished.calibration)
  expected = judge(judged, Criteria(), threshold, shown_NK)
  assert json.loads(metrics.read_text()) == expected


def test_a_tagged_file_is_one_set(tag, rows, finished, tmp_path, monkeypatch):
  lines, npz, metrics = tag(rows)
  mark = lines.with_suffix('.judged.json')
  listed = json.loads(mark.read_text())['files']
  assert set(listed) == {path.name for path in (lines, npz, metrics)}
  before = contents(tmp_path)

  def killed(*_):
    raise KeyboardInterrupt

  # A writer that is stopped leaves all files of the last set.
  with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
    patch.setattr('xjax.run.tagger.prediction_line', killed)
    tag(rows[:3])
  (tmp_path / 'in.jsonl').write_bytes(before['in.jsonl'])
  assert contents(tmp_path) == before
  read_judged(JudgeFiles(npz))
  # Files of two sets are not mixed.
  other = npz.read_bytes()
  tag(rows[:3])
  npz.write_bytes(other)
  with pytest.raises(DataError, match=r'out\.npz: is not .*predict again'):
    read_judged(JudgeFiles(npz))


@pytest.mark.thorough
def test_the_page_belongs_to_the_set(finished, described, rows, tmp_path):
  out = tmp_path / 'out.jsonl'
  source = write_rows(tmp_path / 'in.jsonl', rows[:1])
  call = finished.workdir, str(source), str(out), 2
  predict_file(*call, explain=2, page=explanation_page)
  page = out.with_suffix('.html')
  assert 'out.jsonl' in page.read_text()
  listed = json.loads(out.with_suffix('.judged.json').read_text())['files']
  assert page.name in listed
  predict_file(*call)  # the next set has no page
  assert not page.exists()
  predict_file(*call, explain=2, page=explanation_page)
  page.write_text('mine')
  predict_file(*call)
  assert page.read_text() == 'mine'
  with pytest.raises(WriteError, match='out.html: is not a file of an earlier'):
    predict_file(*call, explain=2, page=explanation_page)
  assert page.read_text() == 'mine'


def test_no_labels_are_not_unknown_labels(tag, rows):
  alone = json.loads(tag(rows[:3])[2].read_text())['xjax']['all']
  _, npz, metrics = tag([*rows[:3], *({**r, 'labels': []} for r in rows[3:])])
  values = json.loads(metrics.read_text())['xjax']['all']
  assert values['n_docs'] == 3 and values['n_skipped'] == 3
  assert values['RP@5'] == pytest.approx(alone['RP@5'], abs=1e-12)
  assert Predictions.load(npz).gold.lengths.tolist()[3:] == [0, 0, 0]


def test_unheard_of_labels_are_missed(tag, rows):
  _, npz, metrics = tag([rows[0] | {'labels': ['z', 'a']}])
  predictions = Predictions.load(npz)
  assert predictions.labels[-2:] == ('a', 'z')
  last = len(predictions.labels) - 1
  assert predictions.gold[0].tolist() == [last - 1, last]
  assert json.loads(metrics.read_text())['xjax']['all']['R@10'] == 0


def test_bad_lines_are_skipped_and_counted_only_if_asked(tag, rows, caplog):
  bad = [rows[0], {'txt': 'x'}, ['text'], rows[1]]
  with pytest.raises(DataError) as caught:
    tag(bad)
  assert '2 faults in all' in str(caught.value)
  assert str(caught.value).endswith('with --skip_bad_lines')
  lines = read_rows(tag(bad, skip_bad_lines=True)[0])
  assert [row['id'] for row in lines] == [rows[0]['id'], rows[1]['id']]
  assert 'left out 2 records, with 2 faults:' in caplog.text


@pytest.mark.parametrize('ids', [('santé', 'b'), ('sante\u0301', 'b')])
def test_gold_labels_are_those_of_the_run_in_any_form(ids):
  labels = [Label(id_, id_) for id_ in ids]
  space = LabelSpace(labels, np.ones(2, np.int32), 2, 2)
  given = [[ids[0]], ['b\xa0', 'b'], None, ['sante\u0301\u200b']]
  documents = [Document(str(i), {'t': ''}) for i in range(4)]
  split, space = labelled_split(documents, given, space)
  rows = [split.gold[row].tolist() for row in range(4)]
  assert rows[:3] == [[0], [1], []]
  assert rows[3] == [0]
