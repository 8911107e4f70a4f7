"""Checks the command line as users see it: files, messages, exit codes."""

from collections.abc import Sequence
import json
import pathlib
from unittest import mock

import numpy as np
import pytest

from tests.commands.conftest import Done, run_process
from tests.fixtures.vector_files import json_lines
import xjax
from xjax.commands.flags.plan import devices_of
from xjax.core.errors import Preempted
from xjax.core.mesh_config import MeshConfig

QUICK = (
  *('--config=quickstart', '--config.data.n_train=200'),
  *('--config.data.n_dev=24', '--config.data.n_test=24'),
  *('--config.data.n_labels=32', '--config.data.tokens.max_tokens=32'),
  *('--config.data.tokens.buckets=32', '--config.model.encoder.units=16'),
  '--config.train.steps=30',
)


def rows_of(text: str) -> list[dict]:
  return [json.loads(line) for line in text.splitlines()]


@pytest.fixture(scope='module')
def trained(run_main, tmp_path_factory) -> tuple[pathlib.Path, str]:
  """A workdir and what training it printed."""
  workdir = tmp_path_factory.mktemp('mains') / 'run'
  return workdir, run_main('train', *QUICK, f'--workdir={workdir}').stdout


def documents(path: pathlib.Path, labels: Sequence[str] | None) -> None:
  rows = [{'text': 'one of two texts'}, {'id': 'b', 'text': 'the other'}]
  if labels is not None:
    rows = [{**row, 'labels': list(labels)} for row in rows]
  json_lines(path, rows)


def test_train_judges_predicts_and_says_where(trained):
  workdir, printed = trained
  for word in ('slice', 'popularity prior', 'frequent', 'predicted', 'gold'):
    assert word in printed
  assert str(workdir) in printed


def test_a_threshold_alone_decides_how_many_labels(run_main, trained):
  workdir, _ = trained
  flags, given = (f'--workdir={workdir}', '--threshold=0'), '{"text": "one"}'
  assert [
    len(
      rows_of(run_main('predict', *flags, *k, stdin=given).stdout)[0]['labels']
    )
    for k in ((), ('--k=5',))
  ] == [31, 5]


def test_streams_files_and_python_agree(run_main, trained, tmp_path):
  workdir, _ = trained
  documents(tmp_path / 'in.jsonl', None)
  out = tmp_path / 'out.jsonl'
  flags = (f'--workdir={workdir}', '--k=4')
  stream = run_main(
    'predict', *flags, stdin=(tmp_path / 'in.jsonl').read_text()
  )
  assert [row['id'] for row in rows_of(stream.stdout)] == ['line-1', 'b']
  run_main(
    'predict', *flags, f'--input={tmp_path / "in.jsonl"}', f'--output={out}'
  )
  assert out.read_text() == stream.stdout
  assert not out.with_suffix('.metrics.json').exists()
  lists = xjax.load(workdir).predict(['one of two texts', 'the other'], 4)
  for row, labels in zip(rows_of(stream.stdout), lists, strict=True):
    assert [found['id'] for found in row['labels']] == [x.id for x in labels]
    # The number of devices differs, so scores are equal up to rounding only.
    np.testing.assert_allclose(
      [found['score'] for found in row['labels']],
      [x.score for x in labels],
      atol=1e-5,
    )


def test_a_preempted_run_leaves_with_75(run_main, monkeypatch, tmp_path):
  stopped = mock.Mock(side_effect=Preempted('saved at step 3'))
  monkeypatch.setattr('xjax.run.fit.fit', stopped)
  done = run_main('train', *QUICK, f'--workdir={tmp_path / "run"}', code=75)
  assert 'preempted: saved at step 3' in done.stderr


def test_a_mistake_in_a_process():
  done = run_process('train', '--config=none.py', '--workdir=x', code=1)
  assert done == Done('', 'error: --config=none.py: no such file\n')


def test_mistakes_in_documents_name_their_lines(run_main, trained):
  workdir, _ = trained
  lines = '{"text": "a"}\n{"txt": 1}\n{'
  done = run_main('predict', f'--workdir={workdir}', stdin=lines, code=1)
  assert 'standard input:2: ' in done.stderr
  assert 'standard input:3: ' in done.stderr
  assert done.stdout.count('"id"') > 1 and done.stdout.count('\n') == 1


def test_broken_workdirs_and_absent_splits(run_main, trained, tmp_path):
  workdir, _ = trained
  home = f'--workdir={workdir}'
  assert 'nope' in run_main('evaluate', home, '--split=nope', code=1).stderr
  done = run_main('evaluate', home, f'--data_dir={tmp_path}', code=1)
  assert done.stderr == (
    'error: --data_dir: the corpus of this run is generated, not read from '
    'files\n'
  )
  other = run_main('train', QUICK[0], home, code=1)
  assert 'data.n_train: 200 -> 2000' in other.stderr


def test_a_plan_reads_the_corpus_where_no_sizes_are_given(run_main, tmp_path):
  workdir = tmp_path / 'run'
  small = '--config.data.n_train=64', '--config.model.encoder.units=8'
  flags = '--plan', '--nomultihost', '--chip=l4', f'--workdir={workdir}'
  done = run_main('train', QUICK[0], *small, *flags)
  assert '64 training documents' in done.stdout
  assert 'assumed' not in done.stdout
  assert not workdir.exists()


@pytest.mark.parametrize(
  ('mesh', 'chip', 'count'),
  [((-1, 1), '', 8), ((2, -1), '', 8), ((-1, 2), 'l4', 2), ((2, 2), '', 4)],
)
def test_a_plan_is_for_as_many_devices_as_a_run_takes(mesh, chip, count):
  assert devices_of(MeshConfig(*mesh), chip) == count
