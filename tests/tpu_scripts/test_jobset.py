"""Tests jobset.sh and its manifest with a kubectl that records its calls."""

import json
import pathlib

import pytest
import yaml

from tests.tpu_scripts.conftest import kill

SCRIPTS = pathlib.Path(__file__).parents[2] / 'tpu_scripts'
SETTINGS = {
  'NAME': 'mine',
  'IMAGE': 'registry/xjax:1&2',
  'ACCELERATOR': 'tpu-v5-lite-podslice',
  'TOPOLOGY': '4x4',
  'HOSTS': '1',
  'DEVICES': '4',
  'CLAIM': 'nfs',
}
EXCLUSIVE = 'alpha.jobset.sigs.k8s.io/exclusive-topology'


@pytest.fixture(autouse=True)
def settings(monkeypatch):
  for name, value in SETTINGS.items():
    monkeypatch.setenv(name, value)


def applied(cluster):
  return json.loads((cluster.folder / 'jobset.json').read_text())


@pytest.mark.parametrize(
  ('codes', 'code', 'times'), [((75, 143, 134, 0), 0, 4), ((75, 1, 0), 1, 2)]
)
def test_a_jobset_starts_again_on_what_is_no_failure_of_its_own(
  codes, code, times, cluster, job, run, said, stumble
):
  stumble('kubectl', 'delete jobset', 2)
  job.ends_with(*codes)
  assert run('jobset.sh', *job.words) == code
  assert job.starts == ['here --workdir=a b --multihost'] * times
  assert len(cluster.calls('apply')) == 1
  # The ended JobSet is deleted, so that it does not block the next one.
  assert cluster.calls()[-1].startswith('kubectl delete jobset mine')
  assert not (cluster.folder / 'jobset.json').exists()
  if code == 1:
    assert 'error: not today' in said().splitlines()


@pytest.mark.parametrize(('again', 'code'), [(134, 134), (143, 75)])
def test_it_does_not_start_again_for_ever(
  again, code, cluster, job, run, monkeypatch
):
  monkeypatch.setenv('RESTARTS', '1')
  job.ends_with(again, again, 0)
  assert run('jobset.sh', *job.words) == code
  assert len(job.starts) == 2


def test_again_it_finds_the_jobset(
  cluster, job, begin, run, wait_for, said, stumble, at_work
):
  job.ends_with('wait')
  kill(at_work('jobset.sh'))
  looks = len(cluster.calls('get jobset'))
  second = begin('jobset.sh', *job.words)
  wait_for(lambda: len(cluster.calls('get jobset')) > looks + 1)
  assert run('jobset.sh', 'other') == 1
  text = f'error: mine: the JobSet runs another command: {job.spelled}\n'
  assert said() == text
  stumble('kubectl', 'delete jobset', 1)
  second.terminate()
  assert second.wait(60) == 75
  assert len(cluster.calls('apply')) == 1 and len(job.starts) == 1
  assert 'saved' in (cluster.folder / 'log').read_text()


@pytest.mark.parametrize(
  ('device', 'slices'), [('tpu', 1), ('tpu', 2), ('gpu', 1)]
)
def test_the_manifest(
  device, slices, cluster, job, begin, wait_for, monkeypatch
):
  monkeypatch.setenv('SPOT', '1')
  monkeypatch.setenv('SLICES', str(slices))
  monkeypatch.setenv('XLA_FLAGS', '--xla_mine')
  monkeypatch.setenv('HOSTS', '4')
  if device == 'gpu':
    monkeypatch.delenv('TOPOLOGY')
    monkeypatch.setenv('ACCELERATOR', 'nvidia-h100-80gb')
  job.ends_with(*['wait'] * 4)
  words = *job.words, 'a "b" \\ $NAME & c\nd\te'
  process = begin('jobset.sh', *words)
  wait_for(lambda: sum('here' in line for line in job.starts) == 4)
  manifest = applied(cluster)
  process.terminate()
  assert process.wait(60) == 75
  meta = manifest['metadata']
  assert meta['name'] == 'mine'
  # The hosts of one TPU slice are the nodes of one pool.
  alone = meta['annotations'].get(EXCLUSIVE)
  assert alone == ('cloud.google.com/gke-nodepool' if device == 'tpu' else None)
  (train,) = manifest['spec']['replicatedJobs']
  assert train['replicas'] == slices
  spec = train['template']['spec']
  assert spec['completionMode'] == 'Indexed'
  assert spec['parallelism'] == spec['completions'] == 4
  pod = spec['template']['spec']
  google = 'cloud.google.com/gke-'
  assert pod['nodeSelector'] == {
    f'{google}spot': 'true',
    **(
      {
        f'{google}tpu-accelerator': 'tpu-v5-lite-podslice',
        f'{google}tpu-topology': '4x4',
      }
      if device == 'tpu'
      else {f'{google}accelerator': 'nvidia-h100-80gb'}
    ),
  }
  (container,) = pod['containers']
  assert container['command'] == [*words, '--multihost']
  env = {one['name']: one['value'] for one in container['env']}
  flags = '--xla_gpu_enable_latency_hiding_scheduler=true --xla_mine'
  gpu = {'XLA_FLAGS': flags, 'XLA_CLIENT_MEM_FRACTION': '0.9'}
  assert env == (gpu if device == 'gpu' else {})
  assert container['image'] == 'registry/xjax:1&2'
  limits = {'google.com/tpu' if device == 'tpu' else 'nvidia.com/gpu': 4}
  assert container['resources']['limits'] == limits
  assert container['volumeMounts'][0]['mountPath'] == '/shared'
  assert pod['volumes'][0]['persistentVolumeClaim']['claimName'] == 'nfs'


def test_the_manifests_are_yaml():
  (jobset,) = yaml.safe_load_all((SCRIPTS / 'jobset.yaml').read_text())
  assert jobset['apiVersion'] == 'jobset.x-k8s.io/v1alpha2'
  access = list(
    yaml.safe_load_all((SCRIPTS / 'jobset_access.yaml').read_text())
  )
  kinds = [one['kind'] for one in access]
  assert kinds == ['ServiceAccount', 'Role', 'RoleBinding']
  pod = jobset['spec']['replicatedJobs'][0]['template']['spec']['template']
  assert pod['spec']['serviceAccountName'] == access[0]['metadata']['name']
