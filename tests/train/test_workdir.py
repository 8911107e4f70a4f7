"""Folders that cannot be a workdir."""

import json

import pytest

from xjax.core.atomic import write_json
from xjax.core.errors import ConfigError, DataError, UserError
from xjax.data.formats.jsonl import JsonlData
from xjax.data.load import load_corpus
from xjax.run.fit import fit
from xjax.run.open_run import open_run
from xjax.train.workdir import Workdir


def test_home_is_understood(tmp_path, monkeypatch):
  monkeypatch.setenv('HOME', str(tmp_path))
  assert Workdir.at('~/run').path == tmp_path / 'run'


@pytest.mark.parametrize('use', [Workdir.at, open_run])
def test_a_name_no_folder_can_have(use, tmp_path):
  with pytest.raises(ConfigError, match='nnn: cannot be a workdir: File name'):
    use(tmp_path / ('n' * 300))


def test_a_workdir_that_cannot_be_made(config, tmp_path):
  (tmp_path / 'file').write_text('x')
  with pytest.raises(UserError, match='file/run.*: cannot be written: Not a'):
    fit(config, tmp_path / 'file' / 'run')


def test_a_changed_file_is_refused_unless_its_writer_was_killed(tmp_path):
  workdir = Workdir.at(tmp_path)
  with workdir.recording(workdir.labels):
    workdir.labels.write_text('old')
  workdir.check(workdir.labels)
  workdir.labels.write_text('changed')
  says = 'labels.jsonl: is not the file that this'
  with pytest.raises(DataError, match=says):
    workdir.check(workdir.labels)
  with pytest.raises(SystemExit), workdir.recording(workdir.labels):
    workdir.labels.write_text('new')
    raise SystemExit
  workdir.check(workdir.labels)


def test_a_folder_called_stages_alone_makes_no_stage(tmp_path):
  mine = Workdir.at(tmp_path / 'stages' / 'mine')
  assert not mine.is_stage
  run = Workdir.at(tmp_path)
  run.config.write_text('{}')
  assert mine.is_stage and run.stage('mine').is_stage and not run.is_stage


@pytest.fixture
def taxonomy(tmp_path):
  """A corpus whose label a is below b, and whose concept y is above b."""
  folder = tmp_path / 'corpus'
  folder.mkdir()
  row = {'id': '1', 'text': 'word', 'labels': ['a', 'b']}
  write_lines(folder / 'train.jsonl', [row])

  def read(**parents):
    parents = {'a': 'b', 'b': 'y', 'y': ''} | parents
    rows = [{'id': id_, 'parents': [*above]} for id_, above in parents.items()]
    write_lines(folder / 'labels.jsonl', rows)
    return load_corpus(JsonlData(dir=str(folder), workers=1), 0)

  return read


def write_lines(path, rows):
  path.write_text(''.join(json.dumps(row) + '\n' for row in rows))


@pytest.mark.parametrize(
  'changed',
  [{'a': 'y'}, {'x': '', 'y': 'x'}, {'a': '', 'b': ''}],
  ids=['of a label', 'of a concept', 'none are left'],
)
def test_a_run_is_not_resumed_with_other_parents(taxonomy, tmp_path, changed):
  workdir, corpus = Workdir.at(tmp_path / 'run'), taxonomy()
  for _ in range(2):
    workdir.record_corpus(corpus)
    write_json(workdir.config, {})
  other = taxonomy(**changed)
  assert other.fingerprint == corpus.fingerprint
  says = r'was started on another corpus \(taxonomy differ'
  with pytest.raises(DataError, match=says):
    workdir.record_corpus(other)
