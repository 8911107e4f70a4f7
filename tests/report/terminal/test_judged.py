"""Tests the results of judging, on the screen and in a folder."""

import csv
import dataclasses
import json
import re

import numpy as np
import pytest

from xjax.core.types import Ragged, ScoreKind
from xjax.judge.criteria import Criteria
from xjax.judge.judge import judge
from xjax.judge.label_lists import LabelLists
from xjax.judge.metrics.protocols import PECOS, PROTOCOLS, XJAX
from xjax.judge.predictions import Predictions
from xjax.report.terminal.judged import judgement_text, write_judgement

FILES = [
  *('documents.jsonl', 'judged.json'),
  *('metrics.csv', 'metrics.json', 'metrics.tex', 'predictions.npz'),
]


def predictions(seed=0, depth=6, **fields):
  rng = np.random.default_rng(seed)
  ids = np.array([rng.permutation(6)[:depth] for _ in range(30)], np.int32)
  scores = np.sort(rng.normal(size=ids.shape).astype(np.float32))[:, ::-1]
  golds = [rng.choice(6, rng.integers(0, 4), False).tolist() for _ in ids]
  found = Predictions(
    score_kind=ScoreKind.LOGIT,
    n_scored=6,
    n_train=100,
    doc_ids=tuple(f'd{i}' for i in range(30)),
    labels=tuple('abcdef'),
    train_counts=np.array([90, 50, 9, 3, 1, 0], np.int32),
    lists={'all': LabelLists(ids, scores)},
    gold=Ragged.of([sorted(gold) for gold in golds]),
  )
  return dataclasses.replace(found, **fields)


def judged(*protocols, ks=(1, 2), **more):
  criteria = Criteria(ks, protocols=protocols or (XJAX,), **more)
  return criteria, judge(predictions(), criteria)


def printed(text, table=-1):
  """Returns {metric: cells} of one of the tables that begin with `metric`."""
  tables = re.split(r'(?m)^metric ', text)[1:]
  rows = tables[table].split('\n\n')[0].splitlines()[1:]
  cells = (re.split(r' {2,}', row) for row in rows if row[0] not in '- ')
  return {name: rest for name, *rest in cells}


def shown(value):
  if value is None:
    return '-'
  return f'{value:,}' if isinstance(value, int) else f'{value:.4f}'


def test_by_slice():
  _, metrics = judged()
  text = judgement_text(metrics)
  assert text.splitlines()[0].split()[:2] == ['slice', 'labels']
  assert 'popularity prior' not in text
  assert 'popularity prior' in judgement_text(metrics, metrics)
  assert 'macro-F1@2' not in text


def test_in_full():
  _, metrics = judged(slices={'odd': np.arange(6) % 2 == 1})
  found = printed(judgement_text(metrics, full=True))
  slices = metrics['xjax']
  assert set(found) == set(slices['all'])
  for metric, cells in found.items():
    values = [v[metric] for v in slices.values() if metric in v]
    assert cells == [shown(v) for v in values]


def test_intervals_are_shown_in_full_and_explained():
  _, metrics = judged(replicates=30)
  text = judgement_text(metrics)
  low, high = metrics['intervals']['xjax']['all']['P@1']
  value = metrics['xjax']['all']['P@1']
  assert f'{value:.4f} [{low:.4f}, {high:.4f}]' in text
  assert text.endswith('95% intervals by bootstrap over documents.')
  assert 'bootstrap' not in judgement_text(judged()[1])


def test_a_search_that_is_not_exact_is_told():
  criteria = Criteria((1, 2))
  said = 'search: beam search of width 4; labels of high score may be missing'
  for kind, found in (('', False), ('exact', False), ('beam=4', True)):
    metrics = judge(predictions(selected_by=kind), criteria)
    assert (said in judgement_text(metrics)) == found
    assert (said in judgement_text(metrics, full=True)) == found


def test_recalls_are_shown_in_each_form():
  recalls = {'all': {'shortlist recall@4': 0.25}, 'few': {}}
  recalls['few'] = {'shortlist recall@4': 0.5}
  found = predictions(recalls=recalls, selected_by='shortlist=4')
  said = 'shortlist recall@4: all 0.250, few 0.500'
  for more in ({}, {'replicates': 20}, {'protocols': (XJAX, PECOS)}):
    text = judgement_text(judge(found, Criteria((1, 2), **more)))
    assert text.count(said) == 1
  assert 'recall@' not in judgement_text(judged()[1])


def test_by_protocol():
  _, metrics = judged(*PROTOCOLS.values())
  text = judgement_text(metrics)
  parts = text.split('slice ')[1:]
  assert [part.split('\n')[0] for part in parts] == list(metrics['xjax'])
  for part in parts:
    name = part.split('\n')[0]
    found = printed(part)
    by_protocol = [metrics[protocol][name] for protocol in PROTOCOLS]
    for metric, cells in found.items():
      values = [values[metric] for values in by_protocol if metric in values]
      assert cells == [shown(value) for value in values]
    if any(values.get('P@1') is not None for values in by_protocol):
      assert found.keys() == {m for values in by_protocol for m in values}
  skipped = metrics['xjax']['all']['n_skipped']
  why = f'{skipped} documents have no gold label: skipped by xjax, counted as 0'
  assert why in ' '.join(text.split())
  assert max(map(len, text.splitlines())) <= 100


def test_one_foreign_protocol_has_its_own_table():
  _, metrics = judged(PECOS)
  text = judgement_text(metrics)
  assert text.splitlines()[1].split() == ['metric', 'pecos']
  assert 'nDCG' not in text


def test_tables_are_at_most_as_wide_as_the_screen():
  _, metrics = judged(*PROTOCOLS.values(), replicates=20)
  text = judgement_text(metrics)
  assert max(map(len, text.splitlines())) <= 100
  for name in PROTOCOLS:
    assert re.search(rf'^metric .*\b{name}\b', text, re.M)


def test_what_is_missing_is_told_once():
  criteria = Criteria((1, 4), ('P@k', 'PSP@k'))
  metrics = judge(predictions(depth=2), criteria)
  text = judgement_text(metrics, full=True)
  reason = metrics['notes']['all']['PSP@4']
  assert metrics['notes']['all']['P@4'] == reason
  assert text.count(reason) == 1
  assert f'slice all\n- P PSP @4: {reason}.' in text


def test_the_files(tmp_path):
  criteria, metrics = judged(*PROTOCOLS.values(), replicates=20)
  folder = tmp_path / 'new' / 'folder'
  write_judgement(folder, predictions(), criteria, metrics)
  assert sorted(path.name for path in folder.iterdir()) == FILES
  assert json.loads((folder / 'metrics.json').read_text()) == metrics
  rows = list(csv.DictReader((folder / 'metrics.csv').read_text().splitlines()))
  assert len(rows) == sum(
    len(values) for name in PROTOCOLS for values in metrics[name].values()
  )
  for row in rows:
    value = metrics[row['protocol']][row['slice']][row['metric']]
    assert row['value'] == ('' if value is None else str(value))
    ends = metrics['intervals'][row['protocol']][row['slice']]
    ends = ends.get(row['metric'], ['', ''])
    assert [row['low'], row['high']] == [str(end) for end in ends]
  lines = (folder / 'documents.jsonl').read_text().splitlines()
  assert [json.loads(line)['id'] for line in lines] == [
    f'd{i}' for i in range(30)
  ]


def test_latex(tmp_path):
  odd = {'50%_odd & more': np.arange(6) % 2 == 1}
  criteria, metrics = judged(XJAX, PECOS, slices=odd, replicates=20)
  write_judgement(tmp_path, predictions(), criteria, metrics)
  tex = (tmp_path / 'metrics.tex').read_text()
  assert tex.count('\\begin{tabular}') == tex.count('\\end{tabular}') == 2
  assert [line for line in tex.splitlines() if line[0] == '%'] == [
    '% protocol xjax',
    '% protocol pecos',
  ]
  first, _ = tex.split('% protocol pecos')
  assert '\\begin{tabular}{lrrrrr}' in first
  header, *rows = [line for line in first.splitlines() if ' & ' in line]
  assert header.endswith('& 50\\%\\_odd \\& more \\\\')
  # Every row has as many cells, and LaTeX reads no bracket as an argument.
  assert {len(re.findall(r'(?<!\\)&', row)) for row in (header, *rows)} == {5}
  assert all(row.endswith(' \\\\') for row in rows)
  assert not re.search(r'(?<!\{)\[', first)
  assert 'n\\_docs & ' in first
  assert any(row.startswith('macro-F1@2{[}1-9] & ') for row in rows)


def test_names_of_slices_are_no_formulas_in_a_table(tmp_path):
  odd = {'=1+cmd()': np.arange(6) % 2 == 1}
  criteria, metrics = judged(XJAX, slices=odd)
  write_judgement(tmp_path, predictions(), criteria, metrics)
  table = (tmp_path / 'metrics.csv').read_text()
  slices = {row['slice'] for row in csv.DictReader(table.splitlines())}
  assert slices >= {'all', "'=1+cmd()"} and '=1+cmd()' not in slices


def test_what_was_there_is_replaced_or_stays_whole(tmp_path, monkeypatch):
  criteria, metrics = judged()
  for name in FILES:
    (tmp_path / name).write_text('old')

  def broken(*_):
    yield '{"id": "d0"}'
    raise RuntimeError('no more')

  with monkeypatch.context() as patched:
    patched.setattr('xjax.report.terminal.judged.document_lines', broken)
    with pytest.raises(RuntimeError, match='no more'):
      write_judgement(tmp_path, predictions(), criteria, metrics)
  assert sorted(path.name for path in tmp_path.iterdir()) == FILES
  assert (tmp_path / 'documents.jsonl').read_text() == 'old'
  write_judgement(tmp_path, predictions(), criteria, metrics)
  assert b'old' not in {path.read_bytes() for path in tmp_path.iterdir()}
