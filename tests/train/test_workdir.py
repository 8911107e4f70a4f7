"""Folders that cannot be a workdir."""

import pytest

from xjax.core.errors import ConfigError, DataError, UserError
from xjax.run.fit import fit
from xjax.run.load import load
from xjax.train.workdir import Workdir, read_json


def test_home_is_understood(tmp_path, monkeypatch):
  monkeypatch.setenv('HOME', str(tmp_path))
  assert Workdir.at('~/run').path == tmp_path / 'run'


@pytest.mark.parametrize('use', [Workdir.at, load])
def test_a_name_no_folder_can_have(use, tmp_path):
  with pytest.raises(ConfigError, match='nnn: cannot be a workdir: File name'):
    use(tmp_path / ('n' * 300))


def test_a_workdir_that_cannot_be_made(config, tmp_path):
  (tmp_path / 'file').write_text('x')
  with pytest.raises(UserError, match='file/run.*: cannot be written: Not a'):
    fit(config, tmp_path / 'file' / 'run')


@pytest.mark.parametrize(
  ('text', 'says'),
  [
    ('[' * 100_000, 'nested too deeply'),
    ('[]', 'a list, not a JSON object'),
    ('{"a": NaN}', 'not JSON: NaN'),
    ('{"a": 1, "a": 2}', 'occurs twice'),
  ],
)
def test_a_json_file_that_no_run_wrote_is_one_error(tmp_path, text, says):
  (tmp_path / 'corpus.json').write_text(text)
  with pytest.raises(DataError, match=f'corpus.json: cannot be read: .*{says}'):
    read_json(tmp_path / 'corpus.json')


@pytest.mark.parametrize('when', ['before', 'after'])
def test_a_file_gets_its_digest_although_its_writer_was_killed(tmp_path, when):
  workdir = Workdir.at(tmp_path)
  with workdir.recording(workdir.labels):
    workdir.labels.write_text('old')
  with pytest.raises(SystemExit), workdir.recording(workdir.labels):
    if when == 'after':
      workdir.labels.write_text('new')
    raise SystemExit
  workdir.check(workdir.labels)
  with workdir.locked():
    workdir.check(workdir.labels)
  workdir.labels.write_text('changed')
  with pytest.raises(
    DataError, match='labels.jsonl: is not the file that this'
  ):
    workdir.check(workdir.labels)


def test_a_folder_called_stages_alone_makes_no_stage(tmp_path):
  mine = Workdir.at(tmp_path / 'stages' / 'mine')
  assert not mine.is_stage
  run = Workdir.at(tmp_path)
  run.config.write_text('{}')
  assert mine.is_stage and run.stage('mine').is_stage and not run.is_stage
