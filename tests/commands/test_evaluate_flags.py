"""Checks that each flag of xjax evaluate has an effect or an error."""

import pytest

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


@pytest.fixture(scope='module')
def usual(judged):
  """Returns the results without any of these flags."""
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


def test_scores_of_a_kind(judged, usual):
  why = usual['notes']['all']['micro-F1']
  assert why.startswith('the scores are margins')
  found = judged('--score_kind=probability')
  assert found['xjax']['all']['micro-F1'] > 0 and 'ECE' in found['xjax']['all']


MISTAKES = {
  '--ks=0': '--ks=(0,): cut-offs must be positive and distinct',
  '--ks=3,3': '--ks=(3, 3): cut-offs must be positive and distinct',
  '--ks=a': 'invalid literal for int()',
  '--metrics=Q': "--metrics: 'Q' is unknown",
  '--metrics=ILD': '--metrics: ILD@k needs --similarity',
  '--metrics=micro-F1-tuned': 'micro-F1-tuned needs a dev split, which only',
  '--protocol=lmct': "--protocol: 'lmct' is unknown",
  '--protocol=': '--protocol: give at least one protocol',
  '--propensity=1': '--propensity=(1.0,): needs two numbers',
  '--propensity=nan,1': '--propensity=(nan, 1.0): needs two numbers',
  '--slices=bin:9-1': '--slices: bin:9-1 is empty',
  '--slices=none.txt': "--slices: 'none.txt' is neither",
  '--slices=level:2': '--slices: level:2 needs labels with parents',
  '--slices=bin:1-9,bin:1-9': "are both called 'bin:1-9'",
  '--labels=none.jsonl': '--labels=none.jsonl: no such file',
  '--similarity=fun': 'should be one of',
  '--similarity=descriptors': '--similarity=descriptors needs --labels',
  '--rank_weights=none.npy': 'none.npy: cannot be read as .npy',
  '--alphas=2': '--alphas=(2.0,): recalls must be from 0 to 1',
  '--draws=0': '--draws=(0,): numbers of documents must be positive',
  '--replicates=9': '--replicates works only with --ci',
  '--seed=9': '--seed works only with --ci',
  '--replicates=1': 'flag --replicates=1: 1 is not integer >= 2',
  '--seed=-1': 'flag --seed=-1: -1 is not a non-negative integer',
  '--gold=none.txt': 'none.txt',
  '--train_labels=none.txt': 'none.txt',
  '--filter=none.txt': 'none.txt',
  '--inv_prop=none.txt': 'none.txt',
  '--depth=0': 'flag --depth=0: 0 is not a positive integer',
  '--score_kind=fun': 'should be one of',
  '--split=dev': '--split works only with --workdir',
  '--data_dir=x': '--data_dir works only with --workdir',
  '--workdir=x': 'give exactly one of --workdir and --predictions',
  '--output=README.md': 'README.md',
}


@pytest.mark.parametrize('argument', MISTAKES)
def test_a_mistake_is_one_message(evaluate, given, argument):
  done = evaluate(*given, '--score_kind=margin', argument)
  assert done.returncode == 1
  assert done.stderr.startswith('error: ') and done.stderr.count('\n') == 1
  assert MISTAKES[argument] in done.stderr
  assert not done.stdout or argument.startswith('--output')


def test_two_sources_of_weights(evaluate, given, folder):
  done = evaluate(
    *given, f'--inv_prop={folder}/inv_prop.txt', '--propensity=0.5,0.4'
  )
  assert done.returncode == 1
  assert done.stderr == 'error: give only one of --inv_prop and --propensity\n'


def test_nothing_is_written_where_judging_fails(evaluate, given, tmp_path):
  done = evaluate(*given, '--slices=level:1', f'--output={tmp_path}/out')
  assert done.returncode == 1
  assert not (tmp_path / 'out').exists()
