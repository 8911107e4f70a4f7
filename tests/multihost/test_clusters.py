"""Two processes that find each other as on SLURM and on Kubernetes."""

import os
import pathlib
import subprocess
import sys

import pytest

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

# A JobSet of two pods as its API server tells of it, and the names of its pods.
KUBERNETES = """
import builtins, io, json, os, socket, sys, types
from jax._src.clusters import K8sCluster

answers = json.loads(os.environ['ANSWERS'])

class Object:
  def __init__(self, fields):
    for name, value in fields.items():
      setattr(self, name, Object(value) if name in PARTS else value)

PARTS = 'metadata', 'spec'

class Denied(Exception):
  status, reason = 403, 'Forbidden'

class Core:
  def list_namespaced_pod(self, namespace, field_selector):
    if answers == 'denied':
      raise Denied
    assert (namespace, field_selector) == ('ours', 'status.podIP=10.0.0.7')
    owner = types.SimpleNamespace(controller=True, kind='Job')
    meta = {'labels': {'job-name': 'mine-train-0'}, 'owner_references': [owner]}
    pod = Object({'metadata': {**meta, 'name': 'pod'}, 'spec': {}})
    return types.SimpleNamespace(items=[pod])

class Batch:
  def read_namespaced_job(self, name, namespace):
    assert (name, namespace) == ('mine-train-0', 'ours')
    label = {'jobset.sigs.k8s.io/jobset-name': 'mine'}
    return Object({'metadata': {'name': name, 'labels': label},
                   'spec': {'parallelism': 2}})

fake = types.ModuleType('kubernetes')
fake.__spec__ = types.SimpleNamespace()
fake.config = types.SimpleNamespace(load_incluster_config=lambda: None)
errors = types.SimpleNamespace(ApiException=Denied)
fake.client = types.SimpleNamespace(
  CoreV1Api=Core, BatchV1Api=Batch, exceptions=errors)
if answers != 'no package':
  sys.modules['kubernetes'] = fake

hosts = {'pod': '10.0.0.7', 'mine-train-0-0.mine': '127.0.0.1'}
socket.gethostbyname = hosts.__getitem__
real_open = builtins.open
token = '/var/run/secrets/kubernetes.io/serviceaccount/namespace'
builtins.open = lambda file, *a, **k: (
  io.StringIO('ours') if file == token else real_open(file, *a, **k))

# gRPC resolves names by itself.
find = K8sCluster.get_coordinator_address
def resolved(cls, **settings):
  host, _, port = find(**settings).partition(':')
  return f'{hosts[host]}:{port}'
K8sCluster.get_coordinator_address = classmethod(resolved)
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


def pod(index, port, answers='{}'):
  return {
    'KUBERNETES_SERVICE_HOST': '10.0.0.1',
    'HOSTNAME': 'pod',
    'JOB_COMPLETION_INDEX': str(index),
    'ANSWERS': answers,
    'JAX_COORDINATOR_PORT': str(port),
  }


def test_pods_of_a_jobset_find_each_other(free_port):
  found = both(KUBERNETES + JOIN, pod(0, free_port), pod(1, free_port))
  assert found == ['0 2 [1, 2]', '1 2 [1, 2]']


@pytest.mark.parametrize(
  ('answers', 'says'),
  [
    ('"denied"', 'RuntimeError: Kubernetes API Error: 403 - Forbidden'),
    ('"no package"', "needs pip install 'xjax[k8s]'; ValueError: coord"),
  ],
)
def test_what_kubernetes_refuses_is_one_error(answers, says):
  process = begin(KUBERNETES + JOIN, pod(0, 1, answers))
  _, said = process.communicate(timeout=120)
  assert process.returncode == 1
  (line,) = said.splitlines()
  assert line.startswith(
    'error: --multihost: the other processes are not found'
  )
  assert says in line and '--coordinator=ADDRESS:PORT' in line
