"""xjax embeddings as a user has it: flags, the file, what it says."""

import subprocess
import sys

import pytest

from tests.commands.conftest import ROOT
from xjax.data.formats.synthetic import SyntheticData
from xjax.train.initial.word2vec import WordTraining, train_word_vectors

COMMAND = sys.executable, '-m', 'xjax', 'embeddings'
QUICK = '--config=quickstart', '--config.data.n_train=100', '--config.seed=4'
FLAGS = ('--dim=24', '--epochs=3', '--workers=1', '--min_count=3')


@pytest.mark.thorough
def test_the_file_follows_from_the_flags(tmp_path):
  path, again = tmp_path / 'new' / 'l2v.bin', tmp_path / 'again.bin'
  command = [*COMMAND, *QUICK, f'--output={path}', *FLAGS]
  done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
  assert done.returncode == 0, done.stderr
  training = WordTraining(dim=24, epochs=3, min_count=3, seed=4)
  data = SyntheticData(n_train=100)
  words = train_word_vectors(data, training, again, workers=1)
  assert done.stdout == f'{path}: {words} words, 24 dimensions\n'
  assert path.read_bytes() == again.read_bytes()
