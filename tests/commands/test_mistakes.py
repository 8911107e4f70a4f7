"""Mistakes on the command line: one line, and exit code 1."""

import pytest

from tests.commands.conftest import ROOT

# flags -> what the one line says
STRATEGY = {
  '--strategy_k=3': '--strategy_k works only with --strategy',
  '--beta=1': '--beta works only with --strategy=coverage',
  '--strategy=propensity --beta=1': 'beta works only with --strategy=coverage',
  '--strategy=propensity --strategy_seed=1': (
    '--strategy_seed works only with --strategy=coverage'
  ),
  '--strategy=coverage --strategy_k=0': '--strategy_k=0: must be at least 1',
  '--strategy=coverage --beta=-1': 'beta=-1.0: must be a number of at least 0',
  '--strategy=best': 'should be one of <propensity|coverage>',
}
# command -> further words -> what the one line says
MISTAKES: dict[str, dict[str, str]] = {
  'train --config=quickstart --workdir=x': {
    '--config.train.stepz=3': 'stepz: no such field; did you mean steps',
    '--config.train.steps=many': 'steps=many: invalid literal for int()',
    '--config.train.schedule=steep': 'one of <constant|linear|cosine>',
    '--config.data.zones=a,b --config.data.n_train=9': "there is no zone 'a'",
    '--profile=3': '--profile=3: expected FIRST:LAST',
    '--profile=9:601': 'must not be larger than config.train.steps=600',
    'steps=3': "'steps=3' is not a flag",
    '--coordinator=host:1': '--coordinator, --num_processes and',
    '--chip=l4': '--chip works only with --plan',
  },
  'train --config=quickstart': {
    '': 'error: --workdir is missing; give the folder to write the run to',
    '--workdri=x': "'workdri'. Did you mean: workdir",
    '--workdir=README.md': 'README.md: the workdir must be a folder',
    '--plan --plan_labels=9': 'give both --plan_labels and --plan_documents',
    '--plan --multihost': '--plan and --multihost cannot',
    '--plan --devices=3 --chip=l4': 'must be a multiple of 3',
    '--plan --topology=4x4': '--topology and --slices work only with TPUs',
    '--plan --chip=v5e --topology=4by4': '=4by4: v5e: slices have shapes such',
    '--plan --chip=l4 --config.eval.leave_out=nowhere.txt': (
      "leave_out='nowhere.txt': there is no such file"
    ),
  },
  'train --workdir=x': {
    '': 'error: --config is missing; give the name',
    '--config.seed=3': '--config.seed needs --config=NAME',
    '--config=none.py': 'none.py: no such file',
    '--config=own_bigru_lwan': 'data.dir',
  },
  'train --config=auto --config.data.dir=docs --plan': {
    '': 'this config has AutoModel'
  },
  'serve': {
    '': 'error: --workdir is missing; give the folder of a run',
    '--workdir=x --timeout=nan': 'not a number of seconds',
  },
  'export --workdir=x': {'': 'error: --output is missing; give the folder'},
  'evaluate': {
    '': 'give exactly one of --workdir and --predictions',
    '--workdir=x': 'this folder has no run of xjax',
    '--workdir=x --gold=x': 'error: --gold works only with --predictions',
    '--predictions=x.npz': 'x.npz',
    '--predictions=x.npz --split=dev': '--split works only with --workdir',
  },
  'evaluate {given} --score_kind=margin': {
    '--ks=0': '--ks=(0,): cut-offs must be positive and distinct',
    '--ks=a': 'invalid literal for int()',
    '--metrics=micro-F1-tuned': 'micro-F1-tuned needs a dev split, which only',
    '--protocol=lmct': "--protocol: 'lmct' is unknown",
    '--propensity=1': '--propensity=(1.0,): needs two numbers',
    '--inv_prop=x --propensity=0.5,0.4': 'one of --inv_prop and --propensity',
    '--slices=level:1 --output=x': 'slices: level:1 needs labels with parents',
    '--rank_weights=none.npy': 'none.npy: cannot be read as .npy',
    '--replicates=9': '--replicates works only with --ci',
    '--gold=none.txt': 'none.txt',
    '--output=README.md': 'README.md',
  },
  'predict': {
    '': 'error: --workdir is missing; give the folder of a run',
    '--workdir=x': 'this folder has no run of xjax',
    '--workdir=x --output=y.txt': 'must end in .jsonl',
    '--workdir=x --k=0': '--k=0: must be at least 1',
    '--workdir=x --explain=-1': '--explain=-1: must be a number of words',
  },
  'predict --workdir=x': STRATEGY,
  'compare': {
    '{one}': 'give two systems or more',
    '{one} gone.npz': 'gone.npz: neither a workdir',
    '{one} {two} --metrics=Q': "'Q' is unknown",
    '{one} {two} --names=A': '--names: 1 names for 2 systems',
    '{one} {one}': 'two systems are called',
  },
  'report': {
    '': 'give at least one system',
    '{one}': '--output is missing; give the file',
    '{one} gone.npz --output=x': 'gone.npz: neither a workdir',
    '{one} --replicates=9 --output=x': 'works only with --ci',
    '{one} --metrics=P@7 --output=x': "no system has 'P@7'",
  },
  'embed --config=quickstart': {
    '--folder=y': '--output is missing; give the folder to write',
    '--output=x': '--folder is missing; give the folder of an encoder',
    '--output=x --folder=y --max_tokens=2': 'max_tokens',
    '--output=x --folder=absent_encoder/y/z': 'name of a Hugging Face model',
  },
  'embeddings --config=quickstart': {
    '': 'output',
    '--output=x --dim=0': 'dim',
    '--output=x --config.data.zones=a --config.data.n_train=9': (
      "there is no zone 'a'"
    ),
  },
  'transfer --config=quickstart': {
    '': '--to is missing',
    '--to=flat': '--output is missing',
    '--to=hierarchical --output=x': '--branching is missing',
    '--to=hierarchical --output=x --branching=1': 'at least 2',
    '--to=hierarchical --output=x --branching=4,6.3': 'branching',
    '--to=flat --output=x --seed=1': '--seed works only with --to=hierarchical',
    '--to=hierarchical --output=x --labels=leaves': 'only with --to=flat',
  },
  'sweep --config=sweep_quickstart --workdir=x': {
    '--workers=2 --launcher=print': '--launcher=print starts nothing',
    '--workers=3 --gpus=0,1,0': '--gpus: list 3 GPUs, one per worker',
  },
  'transfer --config=xc_svm --to=flat --output=x': {
    '': 'the documents are features'
  },
}
CALLS = [
  pytest.param(
    f'{command} {words}'.strip(),
    said,
    marks=[pytest.mark.gensim] * command.startswith('embeddings'),
  )
  for command, table in MISTAKES.items()
  for words, said in table.items()
]


@pytest.mark.parametrize(('call', 'said'), CALLS)
def test_a_mistake_is_one_line_and_leaves_nothing(
  call, said, run_main, two_systems, given
):
  names = dict(zip(('one', 'two'), two_systems), given=' '.join(given))
  done = run_main(*call.format(**names).split(), code=1)
  # Nothing is printed, unless writing the results is what fails.
  assert not done.stdout or '--output=README' in call
  (line,) = done.stderr.splitlines()
  assert line.startswith('error: ') and said in line
  assert not list(ROOT.glob('x*.state')) and not (ROOT / 'x').exists()
