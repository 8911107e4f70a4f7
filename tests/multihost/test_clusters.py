"""Two processes that find each other as on SLURM."""

import os
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).parents[2]
# Joins the others, and says where they are and what they are together.
JOIN = """
import jax, numpy as np
from jax.experimental import multihost_utils
from xjax.core.processes.connection import start
from xjax.core.errors import ConfigError
try:
  start(True)
except ConfigError as error:
  raise SystemExit(f'error: {error}')
together = multihost_utils.process_allgather(np.int32(jax.process_index() + 1))
print(jax.process_index(), jax.process_count(), together.tolist())
"""


def begin(program, environment):
  return subprocess.Popen(
    [sys.executable, '-c', program],
    cwd=ROOT,
    env={**os.environ, 'JAX_NUM_CPU_DEVICES': '1', **environment},
    stdout=subprocess.PIPE,
    stderr=subprocess.PIPE,
    text=True,
  )


def both(program, *environments):
  processes = [begin(program, environment) for environment in environments]
  outputs = [process.communicate(timeout=120) for process in processes]
  assert all(p.returncode == 0 for p in processes), outputs
  return [output.splitlines()[-1] for output, _ in outputs]  # gloo says more


def test_tasks_of_srun_find_each_other(free_port):
  step = {
    'SLURM_JOB_ID': str(free_port),
    'SLURM_STEP_NODELIST': 'localhost',
    'SLURM_STEP_NUM_NODES': '1',
    'SLURM_NTASKS': '2',
  }
  tasks = [
    {**step, 'SLURM_PROCID': str(n), 'SLURM_LOCALID': str(n)} for n in (0, 1)
  ]
  assert both(JOIN, *tasks) == ['0 2 [1, 2]', '1 2 [1, 2]']


def test_what_kubernetes_lacks_is_one_error():
  pod = {
    'KUBERNETES_SERVICE_HOST': '10.0.0.1',
    'JOB_COMPLETION_INDEX': '0',
    'JAX_COORDINATOR_PORT': '1',
  }
  without = "import sys\nsys.modules['kubernetes'] = None\n"
  process = begin(without + JOIN, pod)
  _, said = process.communicate(timeout=120)
  assert process.returncode == 1
  (line,) = said.splitlines()
  assert line.startswith(
    'error: --multihost: the other processes are not found'
  )
  assert "needs pip install 'xjax[k8s]'; ValueError: coord" in line
  assert '--coordinator=ADDRESS:PORT' in line
