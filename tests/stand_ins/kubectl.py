"""Replaces kubectl and the controller of JobSets in tests.

The folder $STAND_IN contains:
  calls: the commands so far, one per line.
  jobset.json: the manifest.
  status.json: the state of the JobSet.
  log: the output of its pods.

The rules of the manifest decide whether pods start again after an error.
"""

import json
import os
import pathlib
import signal
import subprocess
import sys
import time

import yaml

FOLDER = pathlib.Path(os.environ['STAND_IN'])
JOBSET, STATUS = FOLDER / 'jobset.json', FOLDER / 'status.json'


def write(path, content):
  path.with_suffix('.new').write_text(json.dumps(content))
  path.with_suffix('.new').rename(path)


def status():
  return json.loads(STATUS.read_text())


def apply():
  (manifest,) = yaml.safe_load_all(sys.stdin)
  assert manifest['kind'] == 'JobSet'
  write(JOBSET, manifest)
  meta = manifest['metadata']
  command = meta['annotations']['command']
  write(STATUS, {'name': meta['name'], 'command': command, 'state': ''})
  if os.fork() == 0:
    os.setsid()
    with (FOLDER / 'log').open('a') as file:
      os.dup2(file.fileno(), 1)
      os.dup2(file.fileno(), 2)
    os.closerange(3, os.sysconf('SC_OPEN_MAX'))
    control(manifest['spec'])


def control(spec):
  """Does the work of the controller until the JobSet has ended."""
  job = spec['replicatedJobs'][0]['template']['spec']
  restarts = 0
  while JOBSET.exists():
    codes = run_pods(job)
    if not any(codes):
      end('Completed', codes)
    reason = reason_of(job['podFailurePolicy']['rules'], max(codes))
    rules = spec['failurePolicy']['rules']
    action = [r['action'] for r in rules if reason in r['onJobFailureReasons']]
    again = action == ['RestartJobSet']
    assert again or action == ['FailJobSet']
    restarts += 1
    if not again or restarts > spec['failurePolicy']['maxRestarts']:
      end('Failed', codes)


def run_pods(job):
  container = job['template']['spec']['containers'][0]
  pods = []
  for index in range(job['parallelism']):
    environment = {**os.environ, 'JOB_COMPLETION_INDEX': str(index)}
    pods.append(subprocess.Popen(container['command'], env=environment))
  write(STATUS, {**status(), 'pods': [pod.pid for pod in pods]})
  codes = [pod.wait() for pod in pods]
  return [code if code >= 0 else 128 - code for code in codes]


def reason_of(rules, code):
  for rule in rules:
    codes = rule.get('onExitCodes')
    if rule['action'] == 'FailJob' and codes['operator'] == 'NotIn':
      if code not in codes['values']:
        return 'PodFailurePolicy'
  return 'BackoffLimitExceeded'


def end(state, codes):
  if STATUS.exists():
    write(STATUS, {**status(), 'state': state, 'codes': codes, 'pods': []})
  sys.exit()


def delete():
  if not JOBSET.exists():
    return
  JOBSET.unlink()
  pods = status().get('pods', [])
  for pod in pods:
    try:
      os.kill(pod, signal.SIGTERM)
    except ProcessLookupError:
      pass
  while any(map(lives, pods)):
    time.sleep(0.01)
  STATUS.unlink()


def lives(pod):
  try:
    os.kill(pod, 0)
  except ProcessLookupError:
    return False
  return True


def main():
  words = sys.argv[2:]
  with (FOLDER / 'calls').open('a') as file:
    file.write(' '.join(['kubectl', *words]) + '\n')
  match words:
    case ['apply', '--filename=-']:
      apply()
    case ['get', 'jobset', name, _, output]:
      if STATUS.exists() and status()['name'] == name:
        field = 'command' if 'annotations.command' in output else 'state'
        print(name, status()[field], end='')
    case ['get', 'pods', *_]:
      print(*status()['codes'], end='')
    case ['logs', *_]:
      print((FOLDER / 'log').read_text(), end='')
    case ['delete', 'jobset', _, '--cascade=foreground', '--ignore-not-found']:
      delete()
    case _:
      return 1
  return 0


if __name__ == '__main__':
  sys.exit(main())
