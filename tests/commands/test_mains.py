"""Checks the command line as users see it: files, messages, exit codes."""

from collections.abc import Sequence
import json
import os
import pathlib
import subprocess
import sys
from unittest import mock

import numpy as np
import pytest

import xjax
from xjax.core.errors import Preempted

ROOT = pathlib.Path(__file__).resolve().parents[2]
QUICK = (
  '--config=quickstart',
  '--config.data.n_train=200',
  '--config.data.n_dev=24',
  '--config.data.n_test=24',
  '--config.data.n_labels=32',
  '--config.data.tokens.max_tokens=32',
  '--config.data.tokens.buckets=32',
  '--config.model.encoder.units=16',
  '--config.train.steps=30',
)
# Mains run on one device, the usual case, unless a test wants more.
ENVIRONMENT = {**os.environ, 'JAX_NUM_CPU_DEVICES': '1'}


def rows_of(text: str) -> list[dict]:
  return [json.loads(line) for line in text.splitlines()]


@pytest.fixture(scope='module')
def trained(run_main, tmp_path_factory) -> tuple[pathlib.Path, str]:
  """A workdir and what training it printed."""
  workdir = tmp_path_factory.mktemp('mains') / 'run'
  done = run_main('train', *QUICK, f'--workdir={workdir}')
  assert done.returncode == 0, done.stderr
  return workdir, done.stdout


def documents(path: pathlib.Path, labels: Sequence[str] | None) -> None:
  rows = [{'text': 'one of two texts'}, {'id': 'b', 'text': 'the other'}]
  if labels is not None:
    rows = [{**row, 'labels': list(labels)} for row in rows]
  path.write_text(''.join(json.dumps(row) + '\n' for row in rows))


def test_train_judges_predicts_and_says_where(trained):
  workdir, printed = trained
  for word in ('slice', 'popularity prior', 'frequent', 'predicted', 'gold'):
    assert word in printed
  for file in (
    'config.json',
    'labels.jsonl',
    'features/vocab.txt',
    'metrics.jsonl',
    'eval/dev/predictions.npz',
    'eval/dev/metrics.csv',
    'eval/test/metrics.json',
  ):
    assert (workdir / file).is_file(), file
  assert str(workdir) in printed


@pytest.mark.thorough
def test_what_train_says_to_run_next_runs(trained):
  commands = [
    line.strip() for line in trained[1].splitlines() if ' -m xjax' in line
  ]
  *commands, serve = commands
  assert len(commands) == 2 and ' serve --workdir=' in serve
  for command in commands:
    done = subprocess.run(
      command,
      shell=True,
      cwd=ROOT,
      env=ENVIRONMENT,
      capture_output=True,
      text=True,
    )
    assert done.returncode == 0, done.stderr
  assert len(rows_of(done.stdout)[0]['labels']) == 5


def test_evaluate_agrees_with_train_and_with_its_artefact(run_main, trained):
  workdir, printed = trained
  path = workdir / 'eval' / 'test' / 'metrics.json'
  before = json.loads(path.read_text())
  done = run_main('evaluate', f'--workdir={workdir}', '--split=test')
  assert done.returncode == 0, done.stderr
  assert json.loads(path.read_text()) == before
  table = done.stdout.splitlines()
  assert all(line in printed for line in table[:3])
  saved = workdir / 'eval' / 'test' / 'predictions.npz'
  again = run_main('evaluate', f'--predictions={saved}')
  assert again.returncode == 0, again.stderr
  # The columns are the same but for the threshold, which is tuned on dev.
  assert again.stdout.splitlines()[1].split()[:8] == table[1].split()[:8]
  assert again.stdout.splitlines()[2].split()[:8] == table[2].split()[:8]
  # A main prints the folder that it wrote to, and none if it wrote nothing.
  assert done.stdout.splitlines()[-1] == str(path.parent)
  assert str(workdir) not in again.stdout


def test_predict_writes_all_three_files(run_main, trained, tmp_path):
  workdir, _ = trained
  label = rows_of((workdir / 'labels.jsonl').read_text())[0]['id']
  documents(tmp_path / 'in.jsonl', [label, 'unheard-of'])
  out = tmp_path / 'new' / 'out.jsonl'
  done = run_main(
    'predict',
    f'--workdir={workdir}',
    f'--input={tmp_path / "in.jsonl"}',
    f'--output={out}',
    '--k=3',
  )
  assert done.returncode == 0, done.stderr
  rows = rows_of(out.read_text())
  assert [row['id'] for row in rows] == ['line-1', 'b']
  for row in rows:
    scores = [found['score'] for found in row['labels']]
    assert len(scores) == 3
    assert scores == sorted(scores, reverse=True)
    assert all(0 <= score <= 1 for score in scores)
    assert all(found['name'] for found in row['labels'])
  metrics = json.loads(out.with_suffix('.metrics.json').read_text())
  assert metrics['xjax']['all']['n_docs'] == 2
  with np.load(out.with_suffix('.npz'), allow_pickle=False) as arrays:
    assert arrays['gold/indptr'].tolist() == [0, 2, 4]
    assert arrays['all/ids'].shape[0] == 2
  again = run_main('evaluate', f'--predictions={out.with_suffix(".npz")}')
  assert again.returncode == 0, again.stderr


def test_predict_explains_labels_on_a_page(run_main, trained, tmp_path):
  workdir, _ = trained
  documents(tmp_path / 'in.jsonl', None)
  out = tmp_path / 'out.jsonl'
  flags = (f'--workdir={workdir}', f'--input={tmp_path / "in.jsonl"}', '--k=3')
  done = run_main('predict', *flags, f'--output={out}', '--explain=2')
  assert done.returncode == 0, done.stderr
  texts = 'one of two texts', 'the other'
  for row, text in zip(rows_of(out.read_text()), texts, strict=True):
    for label in row['labels']:
      assert len(label['why']) == 2
      for word in label['why']:
        assert text[slice(*word['at'])] == word['word']
  page = out.with_suffix('.html').read_text()
  assert page.count('<article ') == 2 and page.count('<button ') == 6
  done = run_main('predict', *flags, f'--output={out}')
  assert done.returncode == 0, done.stderr
  assert not out.with_suffix('.html').exists()


def test_predict_cannot_add_labels_to_any_run(run_main, trained, tmp_path):
  (tmp_path / 'new.txt').write_text('a name\n')
  flags = (f'--workdir={trained[0]}', f'--labels={tmp_path / "new.txt"}')
  done = run_main('predict', *flags, stdin='{"text": "a"}')
  assert done.returncode == 1 and not done.stdout
  (line,) = done.stderr.splitlines()
  assert line.startswith(
    'error: the head LabelAttentionConfig cannot score new'
  )
  assert line.endswith(
    'heads that read label names: UnifiedConfig, ZeroShotConfig'
  )


def test_streams_files_and_python_agree(run_main, trained, tmp_path):
  workdir, _ = trained
  documents(tmp_path / 'in.jsonl', None)
  out = tmp_path / 'out.jsonl'
  flags = (f'--workdir={workdir}', '--k=4')
  stream = run_main(
    'predict', *flags, stdin=(tmp_path / 'in.jsonl').read_text()
  )
  assert stream.returncode == 0, stream.stderr
  assert [row['id'] for row in rows_of(stream.stdout)] == ['line-1', 'b']
  file = run_main(
    'predict', *flags, f'--input={tmp_path / "in.jsonl"}', f'--output={out}'
  )
  assert file.returncode == 0, file.stderr
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


def test_a_finished_run_is_not_trained_again(run_main, trained):
  workdir, printed = trained
  done = run_main('train', *QUICK, f'--workdir={workdir}')
  assert done.returncode == 0, done.stderr
  assert 'step 30/30' not in done.stderr
  assert done.stdout == printed


def test_a_preempted_run_leaves_with_75(run_main, monkeypatch, tmp_path):
  stopped = mock.Mock(side_effect=Preempted('saved at step 3'))
  monkeypatch.setattr('xjax.run.fit.fit', stopped)
  done = run_main('train', *QUICK, f'--workdir={tmp_path / "run"}')
  assert done.returncode == 75
  assert 'preempted: saved at step 3' in done.stderr


def test_a_mistake_in_a_process():
  command = 'xjax', 'train', '--config=none.py', '--workdir=x'
  done = subprocess.run(
    [sys.executable, '-m', *command],
    cwd=ROOT,
    env=ENVIRONMENT,
    capture_output=True,
    text=True,
    timeout=120,
  )
  assert (done.returncode, done.stdout) == (1, '')
  assert done.stderr == 'error: --config=none.py: no such file\n'


def test_mistakes_in_documents_name_their_lines(run_main, trained):
  workdir, _ = trained
  done = run_main(
    'predict', f'--workdir={workdir}', stdin='{"text": "a"}\n{"txt": 1}\n{'
  )
  assert done.returncode == 1
  assert 'standard input:2: ' in done.stderr
  assert 'standard input:3: ' in done.stderr
  assert not done.stdout


def test_broken_workdirs_and_absent_splits(run_main, trained, tmp_path):
  workdir, _ = trained
  done = run_main('evaluate', f'--workdir={workdir}', '--split=nope')
  assert done.returncode == 1
  assert 'nope' in done.stderr
  done = run_main('evaluate', f'--workdir={workdir}', f'--data_dir={tmp_path}')
  assert done.returncode == 1
  assert done.stderr == (
    'error: --data_dir: the corpus of this run is generated, not read from '
    'files\n'
  )
  other = run_main('train', QUICK[0], f'--workdir={workdir}')
  assert other.returncode == 1
  assert 'data.n_train: 200 -> 2000' in other.stderr
