"""fit_process.py, where pairs of two processes' devices take turns on the mesh.

As on a pod, whose hosts are no consecutive runs of its devices.
"""

import functools
import pathlib
import runpy

import jax
import numpy as np

FIT = pathlib.Path(__file__).parents[1] / 'train' / 'fit_process.py'


def make_mesh(original, *args, **settings):
  pairs = np.array(jax.devices()).reshape(2, -1, 2)
  devices = pairs.swapaxes(0, 1).ravel().tolist()
  return original(*args, **{'devices': devices, **settings})


if __name__ == '__main__':
  jax.make_mesh = functools.partial(make_mesh, jax.make_mesh)
  runpy.run_path(str(FIT), run_name='__main__')
