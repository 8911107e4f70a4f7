"""Checks what judging from the command line prints and writes."""

import json
import pathlib

import pytest

from tests.commands.conftest import N_DOCS, Done
from tests.fixtures.shrink import shrink
from tests.report.terminal.test_judgement import FILES
from tests.run.tagging import contents
from xjax.judge.calibration import reliability_of
from xjax.models.contract import Config
from xjax.report.sources import read_runs
from xjax.run.fit import fit

# Maps each flag to a value that changes something, and to what it changes.
CHANGES = {
  'ks': ('2,4', 'P@4'),
  'metrics': ('P,R-Precision', 'R@5'),
  'protocol': ('pecos', 'n_docs'),
  'propensity': ('0.6,2.6', 'PSP@5'),
  'slices': ('bin:1-9', None),
  'similarity': ('co_occurrence', 'ILD@5'),
  'rank_weights': ('{}/w.npy', 'weighted@5'),
  'alphas': ('0.1', 'coverage[a=0.1]@5'),
  'draws': ('3', 'coverage[n=3]@5'),
  'gold': ('{}/other.txt', 'P@1'),
  'train_labels': ('{}/gold.txt', 'PSP@5'),
  'filter': ('{}/filter.txt', 'P@1'),
  'inv_prop': ('{}/inv_prop.txt', 'PSP@5'),
  'depth': ('3', 'P@5'),
  'score_kind': ('probability', 'micro-F1'),
}


def test_the_files_of_output(evaluate, given, tmp_path):
  done = evaluate(*given, '--ci', '--replicates=20', f'--output={tmp_path}/a/b')
  assert sorted(p.name for p in (tmp_path / 'a/b').iterdir()) == FILES
  assert done.stdout.splitlines()[-1] == f'{tmp_path}/a/b'
  assert (tmp_path / 'a/b/metrics.csv').read_text().startswith('protocol,slice')
  rows = (tmp_path / 'a/b/documents.jsonl').read_text().splitlines()
  rows = [json.loads(row) for row in rows]
  metrics = json.loads((tmp_path / 'a/b/metrics.json').read_text())
  with_gold = [row['P@5'] for row in rows if row['gold']]
  assert len(rows) == N_DOCS
  assert sum(with_gold) / len(with_gold) == pytest.approx(
    metrics['xjax']['all']['P@5']
  )
  # Saved predictions can be judged again.
  again = evaluate(f'--predictions={tmp_path}/a/b/predictions.npz')
  assert again.stdout.splitlines()[1] in done.stdout


def test_slices_of_every_kind(judged, folder):
  asked = f'bin:1-9,bin:50+,level:2,{folder}/odd.txt'
  found = judged(f'--slices={asked}', f'--labels={folder}/labels.jsonl')
  slices = found['xjax']
  assert list(slices)[-4:] == ['bin:1-9', 'bin:50+', 'level:2', 'odd']
  assert slices['level:2']['n_labels'] == 5 and slices['odd']['n_labels'] == 3
  # This bin has the labels of the slice frequent, which is always there.
  for metric in ('n_docs', 'n_labels', 'P@1', 'nDCG@5'):
    assert slices['bin:50+'][metric] == slices['frequent'][metric]
  rows = found['printed'].splitlines()
  assert any(row.startswith('bin:1-9 ') for row in rows)
  (folder / 'hierarchy.txt').write_text('Root\t0\t1\n0\t2\t3\n')
  found = judged('--slices=level:2', f'--labels={folder}/hierarchy.txt')
  assert found['xjax']['level:2']['n_labels'] == 2


def test_metrics_of_labels_with_parents(evaluate, given, folder, tmp_path):
  (folder / 'tree.txt').write_text('Root\t0\t1\n0\t2\t3\n')
  options = f'--labels={folder}/tree.txt', '--score_kind=logit'
  done = evaluate(*given, *options, f'--output={tmp_path}/out')
  values = json.loads((tmp_path / 'out/metrics.json').read_text())['xjax']
  shown = f'{values["all"]["hF1"]:.3f}'
  assert shown in done.stdout and values['all']['n_labels[level=2]'] == 2
  # The parents are saved with the predictions.
  again = evaluate(f'--predictions={tmp_path}/out/predictions.npz')
  assert shown in again.stdout


def test_intervals_have_the_values_in_them(judged):
  found = judged('--ci', '--replicates=50', '--ks=1,5')
  n = 0
  for name, values in found['xjax'].items():
    sure = found['intervals']['xjax'][name]
    for metric, (low, high) in sure.items():
      assert low - 1e-12 <= values[metric] <= high + 1e-12, metric
      text = f'{values[metric]:.4f} [{low:.4f}, {high:.4f}]'
      assert text in found['printed']
      n += 1
  assert n > 100
  assert found['printed'].count('95% intervals') == 1
  again = judged('--ci', '--replicates=50', '--ks=1,5')
  assert again == found
  other = judged('--ci', '--replicates=50', '--ks=1,5', '--seed=1')
  assert other['intervals'] != found['intervals']
  assert other['xjax'] == found['xjax']


@pytest.fixture(scope='module')
def usual(judged):
  return judged()


@pytest.mark.parametrize('flag', CHANGES)
def test_every_flag_does_something(judged, usual, folder, given, flag):
  value, metric = CHANGES[flag]
  files = [arg for arg in given if not arg.startswith(f'--{flag}=')]
  found = judged(f'--{flag}={value.format(folder)}', files=tuple(files))
  assert found['printed'] != usual['printed']
  if metric is None:
    assert set(found['xjax']) - set(usual['xjax']) == {'bin:1-9'}
  else:
    first, *_ = found.values()
    before = usual['xjax']['all'].get(metric, 'none')
    assert first['all'].get(metric, 'none') != before


def test_without_training_labels(evaluate, given):
  done = evaluate(*given[:2], '--protocol=all')
  assert 'slice few' not in done.stdout
  said = ' '.join(done.stdout.split())
  assert 'propensities need the training labels' in said
  flags = '--score_kind=margin', '--slices=bin:1-9'
  done = evaluate(*given[:2], *flags, code=1)
  said = 'error: --slices: bin:1-9 needs the training labels\n'
  assert done == Done('', said)


@pytest.fixture(scope='module')
def workdir(devices, tmp_path_factory) -> pathlib.Path:
  """A run of two steps."""
  folder = tmp_path_factory.mktemp('evaluate') / 'run'
  with devices(1):  # as run_main has it
    return fit(shrink(Config()), folder).workdir


def test_a_run_with_and_without_flags_of_judging(evaluate, workdir, tmp_path):
  before = contents(workdir)
  plain = evaluate(f'--workdir={workdir}', f'--output={tmp_path}/plain')
  assert plain.stdout.endswith(f'\n{workdir}/eval/dev\n\n{tmp_path}/plain\n')
  written = (workdir / 'eval/dev/metrics.json').read_text()
  assert (tmp_path / 'plain' / 'metrics.json').read_text() == written
  done = evaluate(
    *(f'--workdir={workdir}', '--protocol=all', '--ks=2'),
    *('--slices=bin:1-9', f'--output={tmp_path}/asked'),
  )
  # The run's own folder is unchanged; the other one has what was asked for.
  assert contents(workdir) == before
  assert f'{workdir}/eval/dev (judged as in training)\n' in done.stdout
  found = json.loads((tmp_path / 'asked' / 'metrics.json').read_text())
  assert set(found['pecos']) >= {'all', 'bin:1-9'}
  assert 'P@2' in found['xjax']['all'] and 'P@5' not in found['xjax']['all']
  assert 'slice bin:1-9' in done.stdout and 'P@5' not in done.stdout


def test_the_output_for_a_run_shows_its_calibration(
  evaluate, workdir, tmp_path
):
  for split in ('dev', 'test'):
    folder = tmp_path / split
    options = f'--workdir={workdir}', f'--split={split}', '--ks=2'
    evaluate(*options, f'--output={folder}')
    (run,) = read_runs([folder])
    diagram = reliability_of(run.predictions, run.shown_probabilities())
    assert run.calibration and run.split == split
    assert run.metrics['xjax']['all']['ECE'] == diagram.ece
    assert diagram.ece != reliability_of(run.predictions).ece
  # A later evaluation of files takes the calibration away.
  file = workdir / 'eval' / 'dev' / 'predictions.npz'
  evaluate(f'--predictions={file}', f'--output={tmp_path}/dev')
  assert sorted(path.name for path in (tmp_path / 'dev').iterdir()) == FILES
