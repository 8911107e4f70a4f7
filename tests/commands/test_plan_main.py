"""--plan on the command line."""

import pytest

from tests.fixtures.encoders import write_encoder
from tests.fixtures.own_corpus import make_rows, write_csv
from xjax.commands.flags.plan import devices_of
from xjax.core.mesh_config import MeshConfig

QUICK = '--config=quickstart'
AMAZON = '--config=amazon_3m_like'
SIZES = ('--plan_labels=2812281', '--plan_documents=1717899')


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


@pytest.mark.parametrize(
  ('mesh', 'chip', 'count'),
  [((-1, 1), '', 8), ((2, -1), '', 8), ((-1, 2), 'l4', 2), ((2, 2), '', 4)],
)
def test_so_many_devices_as_a_run_takes(mesh, chip, count):
  assert devices_of(MeshConfig(*mesh), chip) == count
