"""Replaces sbatch, srun, squeue, scancel or scontrol in tests.

The first argument, $1, is the path of the command to replace. The folder
$STAND_IN contains:
  calls: the commands so far, one per line.
  jobs/ID.json: the state of a job.

srun starts $TASKS tasks, and describes the other tasks to each of them in
environment variables.
"""

import itertools
import json
import os
import pathlib
import signal
import subprocess
import sys
import time

FOLDER = pathlib.Path(os.environ['STAND_IN'])
JOBS = FOLDER / 'jobs'
ACTIVE = 'PENDING', 'RUNNING'


def read(job):
  return json.loads((JOBS / f'{job}.json').read_text())


def change(job, **fields):
  path = JOBS / f'{job}.json'
  old = json.loads(path.read_text()) if path.exists() else {}
  path.with_suffix('.new').write_text(json.dumps({**old, **fields}))
  path.with_suffix('.new').rename(path)


def value(arguments, flag):
  return [a.partition('=')[2] for a in arguments if a.startswith(flag + '=')][0]


def sbatch(arguments):
  if len(value(arguments, '--comment').encode()) > 1024:
    return 'sbatch: error: Batch job submission failed'
  JOBS.mkdir(exist_ok=True)
  job = int(os.environ.get('JOB_ID', 100)) + len(list(JOBS.glob('*.json')))
  script = next(i for i, a in enumerate(arguments) if not a.startswith('--'))
  name, output = value(arguments, '--job-name'), value(arguments, '--output')
  change(job, name=name, state='PENDING', code=0, requeue=1, again=0)
  change(job, words=value(arguments, '--comment'))
  print(f'{job};here', flush=True)
  if os.fork() == 0:
    os.setsid()
    with open(output, 'a') as file:
      os.dup2(file.fileno(), 1)
      os.dup2(file.fileno(), 2)
    os.closerange(3, os.sysconf('SC_OPEN_MAX'))
    keep(job, arguments[script:])
  return 0


def keep(job, words):
  """Does the work of the controller: runs a job, again if it is requeued."""
  until = time.monotonic() + 60
  while not (FOLDER / 'started').exists():
    if read(job)['state'] == 'CANCELLED' or time.monotonic() > until:
      return
    time.sleep(0.02)
  for restarts in itertools.count():
    change(job, state='RUNNING', again=0)
    environment = {**os.environ, 'SLURM_JOB_ID': str(job)}
    environment['SLURM_RESTART_COUNT'] = str(restarts)
    code = subprocess.run(['bash', *words], env=environment).returncode
    if not read(job)['again']:
      break
    change(job, state='PENDING')
  change(job, state='FAILED' if code else 'COMPLETED', code=code)


def srun(arguments):
  job, count = os.environ['SLURM_JOB_ID'], int(os.environ.get('TASKS', 1))
  words = [a for a in arguments if not a.startswith('--')][:1]
  words = arguments[arguments.index(words[0]) :]
  tasks = []
  for number in range(count):
    variables = {
      'SLURM_STEP_NODELIST': 'localhost',
      'SLURM_STEP_NUM_NODES': '1',
      'SLURM_NTASKS': str(count),
      'SLURM_PROCID': str(number),
      'SLURM_LOCALID': str(number),
    }
    tasks.append(subprocess.Popen(words, env={**os.environ, **variables}))
  change(job, tasks=[task.pid for task in tasks])
  codes = [task.wait() for task in tasks]
  return max(code if code >= 0 else 128 - code for code in codes)


def squeue(arguments):
  name = value(arguments, '--name')
  for path in sorted(JOBS.glob('*.json')):
    fields = read(path.stem)
    if fields['name'] == name and fields['state'] in ACTIVE:
      print(path.stem, fields['words'])
  return 0


def scancel(arguments):
  job = arguments[-1]
  if '--signal=TERM' in arguments:
    for task in read(job).get('tasks', []):
      try:
        os.kill(task, signal.SIGTERM)
      except ProcessLookupError:
        pass
  elif '--state=PENDING' in arguments and read(job)['state'] == 'PENDING':
    change(job, state='CANCELLED')
  return 0


def scontrol(arguments):
  match arguments:
    case ['requeue', job] if read(job)['requeue']:
      change(job, again=1)
    case ['requeue', _]:
      print('Requested operation is presently disabled', file=sys.stderr)
      return 1
    case ['update', job, 'Requeue=0']:
      change(job.partition('=')[2], requeue=0)
    case ['--oneliner', 'show', 'job', job]:
      fields = read(job)
      print(
        f'JobId={job} JobName={fields["name"]} JobState={fields["state"]} '
        f'Requeue={fields["requeue"]} ExitCode={fields["code"]}:0 RunTime=0'
      )
  return 0


def main():
  program, *arguments = sys.argv[1:]
  program = pathlib.Path(program).name
  with (FOLDER / 'calls').open('a') as file:
    file.write(' '.join([program, *arguments]) + '\n')
  programs = sbatch, srun, squeue, scancel, scontrol
  return {p.__name__: p for p in programs}[program](arguments)


if __name__ == '__main__':
  sys.exit(main())
