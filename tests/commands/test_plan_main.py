"""--plan on the command line."""

import re

import pytest

from tests.fixtures.encoders import write_encoder
from tests.fixtures.own_corpus import make_rows, write_csv
from xjax.commands.flags.plan import devices_of
from xjax.core.mesh_config import MeshConfig

QUICK = '--config=quickstart'
AMAZON = '--config=amazon_3m_like'
SIZES = ('--plan_labels=2812281', '--plan_documents=1717899')


def test_millions_of_labels_on_one_gpu_without_the_corpus(run_main):
  done = run_main('train', AMAZON, '--plan', '--chip=h200', *SIZES)
  assert '1 x h200' in done.stdout and '2,812,281 labels' in done.stdout
  assert re.search(r'label rows +4\.03\n', done.stdout)
  assert 'fits' in done.stdout and 'an epoch: 3,356 steps' in done.stdout
  assert 'the sizes of BERT-base' in done.stdout


def test_what_does_not_fit_says_what_to_change(run_main):
  small = (
    '--config.data.n_train=40',
    '--config.model.embedding.dim=8',
    '--config.model.encoder.units=8',
  )
  flags = '--plan', '--chip=v100-16', '--plan_documents=1000'
  labels = '--plan_labels=100000000'
  done = run_main('train', f'{QUICK}:bigru_att', *small, *flags, labels, code=1)
  assert 'DOES NOT FIT' in done.stdout
  assert 'FusedSGD' in done.stdout and 'to make the plan fit' in done.stdout


def test_the_corpus_is_read_where_no_sizes_are_given(run_main, tmp_path):
  workdir = tmp_path / 'run'
  small = '--config.data.n_train=64', '--config.model.encoder.units=8'
  flags = '--plan', '--chip=l4', f'--workdir={workdir}'
  done = run_main('train', QUICK, *small, *flags)
  assert '64 training documents' in done.stdout
  assert 'assumed' not in done.stdout
  assert not workdir.exists()


def test_auto_plans_the_model_that_it_would_choose(run_main, tmp_path):
  path = tmp_path / 'news.csv'
  write_csv(path, make_rows(40, 6))
  flags = '--config=auto', f'--config.data.dir={path}', '--plan'
  done = run_main('train', *flags, code=1)
  assert 'auto: LinearModel' in done.stderr
  assert done.stderr.splitlines()[-1].endswith('this config has LinearModel')
  done = run_main('train', *flags, *SIZES, code=1)
  assert 'leave out --plan_labels' in done.stderr
  encoder = tmp_path / 'encoder'
  write_encoder(encoder, True, max_position_embeddings=512)
  flags += (f'--config.model.encoder={encoder}', '--chip=h200')
  done = run_main('train', *flags)
  assert 'auto: NeuralModel' in done.stderr
  assert '1 x h200' in done.stdout and 'fits' in done.stdout


def test_a_matcher_is_planned_before_its_tree(run_main):
  flags = '--config.data.n_train=64', '--plan', '--chip=l4'
  done = run_main('train', f'{QUICK}:x_transformer', *flags)
  matcher, _, tree = done.stdout.rpartition('\n\n')
  assert matcher.startswith('stages/matcher: NeuralModel, which scores ')
  assert '1 x l4' in matcher and 'fits' in matcher
  assert tree.startswith('model of the run: MatchedModel')


@pytest.mark.parametrize(
  ('mesh', 'chip', 'count'),
  [((-1, 1), '', 8), ((2, -1), '', 8), ((-1, 2), 'l4', 2), ((2, 2), '', 4)],
)
def test_so_many_devices_as_a_run_takes(mesh, chip, count):
  assert devices_of(MeshConfig(*mesh), chip) == count
