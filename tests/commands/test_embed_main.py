"""xjax embed as a user has it: flags, files, a run that reads the files."""

import numpy as np
import pytest

from tests.fixtures.encoders import write_encoder
from tests.fixtures.vector_files import json_lines

FROZEN = (
  '--config=frozen_features',
  '--config.data.workers=1',
  '--config.train.batch_size=4',
  '--config.train.steps=2',
  '--config.train.checkpoint_every=2',
  '--config.train.judge_every=2',
  '--config.eval.batch_size=4',
)
DIM = 8


@pytest.fixture(scope='module')
def folder(tmp_path_factory):
  """A folder with documents, labels and an encoder."""
  folder = tmp_path_factory.mktemp('embed')
  write_encoder(folder / 'encoder', pooler=False)
  (folder / 'data').mkdir()
  files = {'train': 12, 'dev': 4, 'test': 3}
  for name, n in files.items():
    rows = [
      {'id': f'{name}-{i}', 'text': 'pa te ' * (i + 1), 'labels': ['ab'[i % 2]]}
      for i in range(n)
    ]
    json_lines(folder / 'data' / f'{name}.jsonl', rows)
  labels = {'id': 'a', 'name': 'pa'}, {'id': 'b', 'name': 'te ko'}
  json_lines(folder / 'data' / 'labels.jsonl', labels)
  return folder


def command(folder):
  """Returns the words of a command that writes folder/vectors."""
  return (
    'embed',
    '--config=frozen_features',
    f'--config.data.dir={folder}/data',
    f'--folder={folder}/encoder',
    '--max_tokens=16',
    f'--output={folder}/vectors',
  )


@pytest.fixture(scope='module')
def embedded(run_main, folder):
  """Returns the finished command, whose vectors are in folder/vectors."""
  return run_main(*command(folder))


def test_the_command_says_what_it_has_written(embedded, folder):
  assert embedded.stdout.splitlines() == [
    f'{folder}/vectors/{name}.npy: {n} vectors of size {DIM}'
    for name, n in (('train', 12), ('dev', 4), ('test', 3), ('labels', 2))
  ]


def test_the_vectors_are_frozen_features(run_main, embedded, folder, tmp_path):
  run_main(
    'train',
    *FROZEN,
    f'--config.data.dir={folder}/data',
    f'--config.data.tokens.dir={folder}/vectors',
    f'--config.model.embedding.dim={DIM}',
    f'--workdir={tmp_path}/run',
  )
  assert (tmp_path / 'run/eval/test/metrics.json').exists()
  done = run_main(
    *('predict', f'--workdir={tmp_path}/run', '--k=1'),
    f'--input={folder}/data/test.jsonl',
    f'--features={folder}/vectors/test',
  )
  assert len(done.stdout.splitlines()) == 3


def test_the_same_command_again_writes_nothing(run_main, embedded, folder):
  before = {x: x.stat().st_mtime_ns for x in (folder / 'vectors').iterdir()}
  done = run_main(*command(folder), '--splits=dev,test,dev')
  written = [x.rsplit('/')[-1][:3] for x in done.stdout.splitlines()]
  assert written == ['dev', 'tes', 'lab']
  assert 'dev.npy: is complete already' in done.stderr
  after = {x: x.stat().st_mtime_ns for x in (folder / 'vectors').iterdir()}
  assert after == before


def test_a_run_gives_vectors_too(run_main, tmp_path):
  quick = (
    '--config=quickstart',
    '--config.data.n_train=60',
    '--config.data.n_dev=9',
    '--config.data.n_test=0',
    '--config.data.n_labels=16',
    '--config.train.steps=1',
  )
  run_main('train', *quick, f'--workdir={tmp_path}/run')
  flags = f'--workdir={tmp_path}/run@1', f'--output={tmp_path}/vectors'
  done = run_main('embed', *flags, '--splits=dev')
  assert np.load(tmp_path / 'vectors' / 'dev.npy').shape[0] == 9
  assert 'labels.npy is left out' in done.stderr
  names = sorted(path.name for path in (tmp_path / 'vectors').iterdir())
  assert names == ['dev.ids.txt', 'dev.npy', 'embed.json']
