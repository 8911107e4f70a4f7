"""--plan on the command line."""

import pytest

from xjax.commands.flags.plan import devices_of
from xjax.core.mesh_config import MeshConfig

QUICK = '--config=quickstart'


def test_the_corpus_is_read_where_no_sizes_are_given(run_main, tmp_path):
  workdir = tmp_path / 'run'
  small = '--config.data.n_train=64', '--config.model.encoder.units=8'
  flags = '--plan', '--chip=l4', f'--workdir={workdir}'
  done = run_main('train', QUICK, *small, *flags)
  assert '64 training documents' in done.stdout
  assert 'assumed' not in done.stdout
  assert not workdir.exists()


@pytest.mark.parametrize(
  ('mesh', 'chip', 'count'),
  [((-1, 1), '', 8), ((2, -1), '', 8), ((-1, 2), 'l4', 2), ((2, 2), '', 4)],
)
def test_so_many_devices_as_a_run_takes(mesh, chip, count):
  assert devices_of(MeshConfig(*mesh), chip) == count
