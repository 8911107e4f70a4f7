"""Runs on a table of one's own, from the file to tagged documents."""

import dataclasses
import gzip
import io
import json
import logging
import shutil
import sys
import types

import numpy as np
import pyarrow as pa
from pyarrow import parquet
import pytest

from tests.fixtures.kills import kill
from tests.fixtures.own_corpus import make_rows, write_csv
from tests.run.tagging import read_rows, write_rows
from xjax.configs.own_documents import auto
from xjax.core.errors import ConfigError, DataError, Preempted
from xjax.data.formats.xc_features import XcFeaturesData
from xjax.data.schema import Label, Labels, LabelSpace
from xjax.data.tokens_config import (
  Analyzer,
  GivenFeaturesConfig,
  TfidfConfig,
)
from xjax.models.contract import Config, load_config
from xjax.models.eval_config import EvalConfig
from xjax.models.stack.stack_model import StackModel, StackTrain
from xjax.models.trees.tree_model import (
  LinearModel,
  LinearTrain,
  TreeModel,
  TreeTrain,
)
from xjax.run import fit as fit_module
from xjax.run.auto import choose
from xjax.run.evaluate_split import evaluate_split
from xjax.run.fit import FitResult, fit
from xjax.run.predict_file import predict_file

ROWS = make_rows(220, 12)


def own_config(path) -> Config:
  config = auto()
  config.data.dir = str(path)
  config.eval = EvalConfig(batch_size=32, depth=8, ks=(1, 5))
  return config


@pytest.fixture(scope='module')
def table(tmp_path_factory):
  path = tmp_path_factory.mktemp('own') / 'news.csv'
  write_csv(path, ROWS)
  return path


@pytest.fixture(scope='module')
def run(table, tmp_path_factory) -> FitResult:
  return fit(own_config(table), tmp_path_factory.mktemp('auto') / 'run')


def test_drawn_splits_are_written_beside_the_run(run):
  paths = (run.workdir / 'splits').iterdir()
  ids = {path.stem: path.read_text().splitlines() for path in paths}
  sizes = {name: len(rows) for name, rows in ids.items()}
  assert sizes == {'train': 176, 'dev': 22, 'test': 22}
  assert ids['dev'] == list(run.corpus.split('dev').ids)


def test_the_choice_and_the_columns_are_saved(run):
  saved = load_config(run.workdir / 'config.json')
  assert isinstance(saved.model, LinearModel)
  assert isinstance(saved.train, LinearTrain)
  assert saved.data.tokens == TfidfConfig(max_ngram=1)
  assert saved.data.text == ('title', 'summary', 'body')
  assert (saved.data.labels, saved.data.label_separator) == ('tags', ';')
  assert run.metrics['test']['xjax']['all']['P@1'] > 0.7


def test_a_second_start_takes_the_model_of_the_workdir(run, table, caplog):
  before = (run.workdir / 'config.json').read_bytes()
  with caplog.at_level(logging.INFO, logger='absl'):
    again = fit(own_config(table), run.workdir)
  assert again.metrics == run.metrics and 'auto:' not in caplog.text
  assert (run.workdir / 'config.json').read_bytes() == before


def tagged(workdir, source, tmp_path) -> list[dict]:
  predict_file(workdir, str(source), str(tmp_path / 'x.jsonl'), k=2)
  return read_rows(tmp_path / 'x.jsonl')


def best(rows):
  return [[label['id'] for label in row['labels']] for row in rows]


def test_new_documents_are_read_like_those_of_the_run(
  run, table, tmp_path, monkeypatch
):
  """Another delimiter and encoding, other columns, and no labels are right."""
  expected = best(tagged(run.workdir, table, tmp_path))[:5]
  metrics = json.loads((tmp_path / 'x.metrics.json').read_text())
  assert metrics['xjax']['all']['P@1'] > 0.7
  rows = [
    {'author': 'x', 'body': x['body'], 'title': x['title'], 'id': f'n{i}'}
    | {'summary': x['summary']}
    for i, x in enumerate(ROWS[:5])
  ]
  write_csv(tmp_path / 'new.txt', rows, '\t', 'utf-16')
  answer = tagged(run.workdir, tmp_path / 'new.txt', tmp_path)
  assert best(answer) == expected
  assert [row['id'] for row in answer] == [f'n{i}' for i in range(5)]
  assert not (tmp_path / 'x.metrics.json').exists()

  columns = {key: [row[key] for row in rows] for key in rows[0]}
  parquet.write_table(pa.table(columns), tmp_path / 'new.parquet')
  answer = tagged(run.workdir, tmp_path / 'new.parquet', tmp_path)
  assert best(answer) == expected

  lines = write_rows(tmp_path / 'new.jsonl', rows)
  assert best(tagged(run.workdir, lines, tmp_path)) == expected

  table = (tmp_path / 'new.txt').read_bytes()
  for data in (lines.read_bytes(), table, gzip.compress(table)):
    pipe = io.BytesIO(data)
    pipe.seekable = lambda: False
    monkeypatch.setattr(sys, 'stdin', types.SimpleNamespace(buffer=pipe))
    assert best(tagged(run.workdir, '-', tmp_path)) == expected


def space_of(n_train, counts) -> LabelSpace:
  n = len(counts)
  labels = Labels.of(Label(f'l{i}', f'l{i}') for i in range(n))
  return LabelSpace(labels, np.array(counts, np.int32), n_train, n)


@pytest.mark.parametrize(
  ('n_train', 'n_labels', 'model', 'train', 'max_ngram'),
  [
    (499, 30, LinearModel, LinearTrain, 1),
    pytest.param(
      *(500, 30, StackModel, StackTrain, 1), marks=pytest.mark.lightgbm
    ),
    pytest.param(
      *(40_000, 4000, StackModel, StackTrain, 2), marks=pytest.mark.lightgbm
    ),
    (40_000, 100_001, TreeModel, TreeTrain, 2),
    (900_000, 20, LinearModel, LinearTrain, 2),
    (900_000, 30_000, TreeModel, TreeTrain, 2),
  ],
)
def test_sizes_choose_a_linear_model_a_tree_or_a_stack(
  n_train, n_labels, model, train, max_ngram
):
  space = space_of(n_train, [1] * n_labels)
  chosen = choose(auto(), space).config
  assert isinstance(chosen.model, model) and isinstance(chosen.train, train)
  assert chosen.data.tokens.max_ngram == max_ngram


def test_without_lightgbm_a_tree_is_chosen(monkeypatch):
  monkeypatch.setitem(sys.modules, 'lightgbm', None)
  chosen = choose(auto(), space_of(40_000, [1] * 4000))
  assert isinstance(chosen.config.model, TreeModel)
  assert 'TreeModel' in chosen.what and 'pip install lightgbm' in chosen.why


def test_tokens_that_the_user_set_are_kept():
  config = auto()
  config.data.tokens.min_count = 7
  space = space_of(100, [1, 2])
  chosen = choose(config, space)
  assert chosen.config.data.tokens == TfidfConfig(min_count=7, max_ngram=1)
  assert 'single words' in chosen.what
  # A value counts as set even if it is the usual one.
  config.data.tokens.max_ngram = 2
  chosen = choose(config, space)
  assert chosen.config.data.tokens == TfidfConfig(min_count=7, max_ngram=2)
  assert '1 to 2 words' in chosen.what
  config.data.tokens = TfidfConfig()
  assert choose(config, space).config.data.tokens == TfidfConfig()


def test_other_tokens_cannot_resume_a_run(run, table):
  config = own_config(table)
  assert fit(config, run.workdir).best_step == run.best_step
  config.data.tokens.max_ngram = 2
  with pytest.raises(ConfigError, match=r'config:\n.*tokens.max_ngram'):
    fit(config, run.workdir)


@pytest.mark.lightgbm
def test_proposers_of_a_stack_read_the_chosen_tokens():
  space = space_of(6000, [1] * 30)

  def grams(analyzer=Analyzer.WORDS, **settings):
    config = auto()
    vars(config.data.tokens).update(settings)
    chosen = choose(config, space, analyzer).config.model.proposers
    tokens = [x.tokens for x in chosen if not x.facts]
    assert all(getattr(x, 'analyzer', analyzer) is analyzer for x in tokens)
    return [x.max_ngram for x in tokens if isinstance(x, TfidfConfig)]

  assert grams() == [2, 2, 1, 1]
  assert grams(min_ngram=2, max_ngram=3) == [3, 3, 2, 2]
  assert grams(Analyzer.CHARACTERS) == [4] * 4


def test_the_choice_is_told(table, tmp_path, caplog, monkeypatch):
  caplog.set_level(logging.INFO, logger='absl')
  kill(monkeypatch, fit_module, 'prior_metrics')  # after the choice
  with pytest.raises(Preempted):
    fit(own_config(table), tmp_path / 'run')
  told = [r.message for r in caplog.records if r.message.startswith('auto:')]
  assert 'LinearModel' in told[0] and '176 training documents' in told[1]
  assert f'{table}: guessed: --config.data.text=' in caplog.text


@pytest.mark.lightgbm
def test_a_stack_that_could_learn_nothing_is_not_chosen(tmp_path, caplog):
  caplog.set_level(logging.INFO, logger='absl')
  rows = [row | {'tags': 'fish'} for row in make_rows(700, 4)]
  write_csv(tmp_path / 'fish.csv', rows)
  result = fit(own_config(tmp_path / 'fish.csv'), tmp_path / 'run')
  model = load_config(result.workdir / 'config.json').model
  assert isinstance(model, LinearModel)
  assert 'a stack would be more exact, but the ranker has' in caplog.text


@pytest.mark.lightgbm
@pytest.mark.parametrize(
  ('n_train', 'minutes'), [(8000, '3 minutes'), (500, '1 minute')]
)
def test_the_minutes_of_a_stack_are_told(n_train, minutes):
  why = choose(auto(), space_of(n_train, [9, 9])).why
  assert f'takes about {minutes} on two cores' in why


def test_features_may_need_a_tree():
  config = auto()
  config.data = XcFeaturesData(tokens=GivenFeaturesConfig())
  for n_labels, model in ((3, LinearModel), (30_000, TreeModel)):
    space = space_of(900, [0, 1] * (n_labels // 2))
    assert isinstance(choose(config, space).config.model, model)


@pytest.fixture(scope='module')
def tree(tmp_path_factory):
  """A folder with a table, and a run that was given its relative path."""
  home = tmp_path_factory.mktemp('tree') / 'made'
  home.mkdir()
  write_csv(home / 'news.csv', ROWS[:60])
  with pytest.MonkeyPatch.context() as patch:
    patch.chdir(home)
    fit(own_config('news.csv'), 'run')
  return home


@pytest.mark.parametrize('moved', ['', 'tree', 'copy', 'into', 'away'])
def test_data_are_found_from_other_folders(tree, tmp_path, monkeypatch, moved):
  """Checks a relative path, also if the folder or the table has moved."""
  home = made = shutil.copytree(tree, tmp_path / 'made')
  record = json.loads((home / 'run/run.json').read_text())
  record |= {'folder': str(home), 'workdir': str(home / 'run')}
  (home / 'run/run.json').write_text(json.dumps(record))
  monkeypatch.chdir(tmp_path)
  match moved:
    case 'tree':
      home = made.rename(tmp_path / 'now')
    case 'copy':  # its own table is read, and not the other one
      home = shutil.copytree(made, tmp_path / 'now')
      (made / 'news.csv').write_text('title,tags\n')
    case 'into' | 'away':
      names = {'into': 'run/news.csv', 'away': 'gone.csv'}
      (home / 'news.csv').rename(home / names[moved])
  if moved != 'away':
    judged = evaluate_split(home / 'run', 'dev')
    assert judged.folder == home / 'run/eval/dev'  # has no other digest
    return
  with pytest.raises(DataError, match='^news.csv: no such file') as error:
    evaluate_split(home / 'run', 'dev')
  for folder in (home, home / 'run', tmp_path):
    assert str(folder / 'news.csv') in str(error.value)


def test_a_file_of_labels_is_found_from_other_folders(
  tree, tmp_path, monkeypatch
):
  home = tmp_path / 'made'
  (home / 'names').mkdir(parents=True)
  shutil.copy(tree / 'news.csv', home)
  tags = {tag for row in ROWS[:60] for tag in row['tags'].split(';')}
  write_csv(home / 'names/tags.csv', [{'id': tag} for tag in sorted(tags)])
  monkeypatch.chdir(home)
  config = own_config('news.csv')
  data = dataclasses.replace(config.data, label_file='names/tags.csv')
  fit(dataclasses.replace(config, data=data), 'run')
  monkeypatch.chdir(tmp_path)
  assert evaluate_split(home / 'run', 'dev').folder == home / 'run/eval/dev'
  home = home.rename(tmp_path / 'now')
  assert evaluate_split(home / 'run', 'dev').folder == home / 'run/eval/dev'


def test_a_second_start_records_where_it_was(tree, tmp_path, monkeypatch):
  home = shutil.copytree(tree, tmp_path / 'made')
  monkeypatch.chdir(tmp_path)
  fit(own_config('made/news.csv'), home / 'run')
  monkeypatch.chdir(tmp_path.parent)
  assert evaluate_split(home / 'run', 'dev').folder == home / 'run/eval/dev'
