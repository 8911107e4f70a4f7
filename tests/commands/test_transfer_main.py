"""Tests `xjax transfer`, and training on what it writes."""

import json

import pytest

QUICK = (
  '--config=quickstart',
  '--config.data.n_train=60',
  '--config.data.n_dev=20',
  '--config.data.n_test=8',
  '--config.data.n_labels=24',
)


@pytest.fixture(scope='module')
def tree(run_main, tmp_path_factory):
  """The folder of a hierarchical corpus."""
  output = tmp_path_factory.mktemp('transfer') / 'tree'
  flags = '--to=hierarchical', '--branching=4,2', f'--output={output}'
  first, *rest = run_main('transfer', *QUICK, *flags).stdout.splitlines()
  assert first.startswith(f'{output}: 88 documents, ')
  assert first.endswith(' labels, 12 meta-labels')
  assert rest[0].startswith('levels: 4 - 8 - ')
  assert rest[1].startswith('children of a node, by level: 4 / 2 / ')
  return output


def test_a_run_trains_on_meta_labels_but_never_shows_them(
  run_main, tree, tmp_path
):
  meta = set((tree / 'meta_labels.txt').read_text().split())
  done = run_main(
    'train',
    '--config=own_linear',
    f'--config.data.dir={tree}',
    '--config.data.tokens.min_count=1',
    '--config.eval.leave_out=meta_labels.txt',
    f'--workdir={tmp_path}/run',
  )
  assert '12 left out of judging' in done.stderr
  assert '  gold ' in done.stdout and 'meta_1' not in done.stdout
  counts = [
    json.loads(line)['train_count']
    for line in (tmp_path / 'run' / 'labels.jsonl').read_text().splitlines()
    if json.loads(line)['id'] in meta
  ]
  assert len(counts) == 12 and sum(counts) > 12  # they are trained
