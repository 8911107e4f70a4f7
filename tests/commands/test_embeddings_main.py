"""xjax embeddings as a user has it: flags, SIGTERM, the file."""

import os
import signal
import subprocess
import sys

import pytest

from tests.commands.conftest import ROOT
from xjax.data.formats.synthetic import SyntheticData
from xjax.train.initial.word2vec import WordTraining, train_word_vectors

COMMAND = sys.executable, '-m', 'xjax', 'embeddings'
QUICK = '--config=quickstart', '--config.data.n_train=400', '--config.seed=4'
FLAGS = ('--dim=24', '--epochs=12', '--workers=1', '--min_count=3')


def start(*arguments: object) -> subprocess.Popen:
  return subprocess.Popen(
    [*COMMAND, *QUICK, *map(str, arguments)],
    cwd=ROOT,
    env={**os.environ, 'JAX_NUM_CPU_DEVICES': '1'},
    stdout=subprocess.PIPE,
    stderr=subprocess.PIPE,
    text=True,
  )


@pytest.mark.thorough
def test_stopped_and_started_again_is_as_if_it_had_not_been(tmp_path):
  path = tmp_path / 'new' / 'l2v.bin'
  with start(f'--output={path}', *FLAGS) as process:
    for line in process.stderr:
      if line.startswith('epoch 2 of 12'):
        process.send_signal(signal.SIGTERM)
        break
    rest = process.stderr.read()
  assert process.returncode == 75, rest
  assert 'preempted: ' in rest and 'Traceback' not in rest
  assert not path.exists()
  with start(f'--output={path}', *FLAGS) as process:
    out, rest = process.communicate(timeout=120)
  assert process.returncode == 0, rest
  assert 'resuming after epoch ' in rest and 'epoch 1 of 12' not in rest
  assert out.startswith(f'{path}: ') and out.endswith(', 24 dimensions\n')
  data = SyntheticData(n_train=400)
  training = WordTraining(dim=24, epochs=12, min_count=3, seed=4)
  whole = tmp_path / 'whole.bin'
  train_word_vectors(data, training, whole, workers=1)
  assert path.read_bytes() == whole.read_bytes()
