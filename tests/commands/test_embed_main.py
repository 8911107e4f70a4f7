"""xjax embed and embeddings: flags, files, and a run that reads the files."""

import pytest

from tests.fixtures.encoders import write_encoder
from tests.fixtures.vector_files import json_lines
from xjax.data.formats.synthetic import SyntheticData
from xjax.train.initial.word2vec import WordTraining, train_word_vectors

FROZEN = (
  *('--config=frozen_features', '--config.data.workers=1'),
  *('--config.train.batch_size=4', '--config.train.steps=2'),
  *('--config.train.checkpoint_every=2', '--config.train.judge_every=2'),
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


@pytest.mark.gensim
@pytest.mark.thorough
def test_the_file_of_word_vectors_follows_from_the_flags(run_main, tmp_path):
  path, again = tmp_path / 'new' / 'l2v.bin', tmp_path / 'again.bin'
  done = run_main(
    *('embeddings', '--config=quickstart', '--config.data.n_train=100'),
    *('--config.seed=4', '--dim=24', '--epochs=3', '--workers=1'),
    *('--min_count=3', f'--output={path}'),
  )
  training = WordTraining(dim=24, epochs=3, min_count=3, seed=4)
  data = SyntheticData(n_train=100)
  words = train_word_vectors(data, training, again, workers=1)
  assert done.stdout == f'{path}: {words} words, 24 dimensions\n'
  assert path.read_bytes() == again.read_bytes()
