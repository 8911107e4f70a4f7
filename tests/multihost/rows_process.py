"""One of two processes whose rows of a batch lie apart; argv: port, id."""

import sys

import jax
from jax.experimental import multihost_utils
from jax.sharding import AxisType
import numpy as np

from xjax.core.distributed import barrier
from xjax.core.mesh import DATA, LABEL, own_rows, put_batch, share_of
from xjax.core.mesh_config import ProcessShare
from xjax.core.processes import connection

BATCH = np.arange(48).reshape(8, 6)


def main(port, process):
  jax.config.update('jax_num_cpu_devices', 4)
  connection.start(True, f'localhost:{port}', 2, int(process))
  # Rows of the mesh: of process 0, 1, 0, 1.
  devices = np.array(jax.devices()).reshape(2, 2, 2).swapaxes(0, 1)
  mesh = jax.sharding.Mesh(
    devices.reshape(4, 2), (DATA, LABEL), axis_types=(AxisType.Auto,) * 2
  )
  share = share_of(mesh)
  assert share == ProcessShare((int(process), int(process) + 2), 4), share
  mine = BATCH[share.rows(len(BATCH))]
  put = put_batch(mine, mesh)
  # Rows lie where a single process would have put them.
  whole = multihost_utils.process_allgather(put, tiled=True)
  np.testing.assert_array_equal(whole, BATCH)
  np.testing.assert_array_equal(own_rows(put), mine)
  turned = jax.jit(lambda x: 2 * x.T)(put)
  np.testing.assert_array_equal(own_rows(turned, axis=1), 2 * mine.T)
  barrier('done')


if __name__ == '__main__':
  main(*sys.argv[1:])
