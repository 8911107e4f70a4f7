"""One of two processes that train linear models; argv: port, id, folder."""

import pathlib
import sys

import jax
import numpy as np
from scipy import sparse

from xjax.core.distributed import barrier
from xjax.core.mesh import make_mesh
from xjax.core.mesh_config import MeshConfig
from xjax.core.processes import connection
from xjax.core.types import Ragged
from xjax.models.linear.batched import OnDevices, fit_batched
from xjax.models.linear.classifiers import PartFiles
from xjax.models.linear.problem import Loss, OneVsAllProblem


def train(folder, mesh, between=lambda: None):
  rng = np.random.default_rng(0)
  gold_NL = rng.random((60, 6)) < 0.3
  rows_ND = np.where(rng.random((60, 20)) < 0.3, rng.random((60, 20)), 0)
  rows_ND[:, :6] += gold_NL
  problem = OneVsAllProblem(
    sparse.csr_array(rows_ND.astype(np.float32)),
    Ragged.of([np.flatnonzero(row) for row in gold_NL]),
    6,
    loss=Loss.LOGISTIC,
    c=1.0,
    threshold=0.0,
    seed=0,
    mesh=MeshConfig(),
    parts=PartFiles(folder),
    between=between,
  )
  solver = OnDevices(tolerance=1e-9, max_steps=4, chunk=4)
  return fit_batched(problem, solver, mesh)


def never():
  raise AssertionError('all parts are there')


def main(port, process, folder):
  jax.config.update('jax_num_cpu_devices', 2)
  connection.start(True, f'localhost:{port}', 2, int(process))
  folder = pathlib.Path(folder)
  found = train(folder / 'parts', make_mesh(MeshConfig()))
  train(folder / 'parts', make_mesh(MeshConfig()), never)
  np.savez(folder / f'{process}.npz', **found.arrays())
  barrier('done')


if __name__ == '__main__':
  main(*sys.argv[1:])
