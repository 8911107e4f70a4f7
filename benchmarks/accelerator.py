r"""Measures xjax on one accelerator, in one command of at most 12 minutes.

On a machine with the data of EURLEX57K, and a folder of all-MiniLM-L6-v2 (a
minute; the files have 49 MB):

  python benchmarks/accelerator.py --prepare=FOLDER \
    --data=DIR --labels=FILE --encoder=ENCODER

On the machine with one GPU, which needs no network (an estimate: 8 minutes):

  python benchmarks/accelerator.py --inputs=FOLDER --out=FILE.json
  python benchmarks/accelerator.py --table=FILE.json

The sections, which --only chooses, are

  checks      losses, gradients, rows after steps in all storages, top-k with
              ties, metrics and attention, beside the values of a CPU
  bert        a training step of BERT-base in bfloat16, 64 documents of 512
              tokens, beside transformers (autocast and SDPA, also compiled)
  ova_head    2,812,281 labels with 768 features in BFLOAT16 and FLOAT8: the
              head alone, beside torch, and with BERT-base as ELMO trains it
  bigru_lwan  BiGRU-LWAN on 16 documents of 2,500 words, beside torch's GRU
  minilm      eurlex57k_minilm by its recipe: minutes, and RP@5 on dev
  quickstart  the minutes and the metrics of the quickstart
  plan        the plans of these steps beside what was measured

Each part of a section is a process of its own, one after the other. A part that
fails, takes too long, or lacks a library is noted, and the next part runs. The
file is written after each part. torch and transformers are optional.

The operations of a step with BERT are 6 x the parameters of the layers'
matrices x tokens, plus 12 x tokens x features per token and layer for
attention, plus 6 x features x labels per document for the head. The peaks are
those of xjax/plan/chips.py. The share of bandwidth counts each weight of the
head once read and once written.

The benchmark exits with 1 if a part fails, if a check misses its tolerance, or
on a GPU if a bound is missed: BERT-base has at least 45 % of the peak and is
faster than transformers, and an epoch of Amazon-3M (1,717,899 documents, BERT
included) takes at most half of ELMO's minutes (ICML 2025: 25:15 in BF16, 18:02
in FP8). --tiny runs everything in small form on any machine, without bounds.
"""

import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time
from typing import Any

from absl import app, flags
from accelerator_parts import PARTS, Part, Skipped, write_json
from accelerator_results import bounds, markdown
from measurement import HERE

# The order, with the most seconds of each part. What matters most comes first;
# the plan needs the results before it.
ORDER = {
  'checks/xjax': 150,
  'bert/xjax': 120,
  'bert/transformers': 60,
  'ova_head/bfloat16': 90,
  'ova_head/float8': 90,
  'ova_head/bfloat16, BERT': 120,
  'ova_head/float8, BERT': 120,
  'bigru_lwan/xjax': 100,
  'bigru_lwan/torch': 60,
  'minilm/bfloat16': 120,
  'quickstart/xjax': 120,
  'ova_head/torch': 60,
  'plan/xjax': 120,
  'bert/transformers, compiled': 120,
  'minilm/float32': 120,
}
# These parts are not run in small form: CPUs compile for minutes, and both are
# like another part.
LARGE_ONLY = 'bert/transformers, compiled', 'minilm/float32'
_LEAST_SECONDS = 10  # with less time left, no part is started

_SECTIONS = [name for name in PARTS if name != 'device']
_ONLY = flags.DEFINE_list('only', _SECTIONS, 'Sections to run.')
_TINY = flags.DEFINE_bool('tiny', False, 'Run everything in small form.')
_OUT = flags.DEFINE_string('out', 'accelerator.json', 'File of the results.')
_INPUTS = flags.DEFINE_string(
  'inputs', '', "Folder of --prepare; '': prepare the checks on this CPU."
)
_MINUTES = flags.DEFINE_float('minutes', 12, 'Most minutes of all parts.')
_PREPARE = flags.DEFINE_string('prepare', '', 'Write the inputs to a folder.')
_DATA = flags.DEFINE_string('data', '', 'Folder of EURLEX57K, for --prepare.')
_LABELS = flags.DEFINE_string(
  'labels', '', 'File of the ids of its 4,271 labels, for --prepare.'
)
_ENCODER = flags.DEFINE_string(
  'encoder', '', 'Folder of all-MiniLM-L6-v2, for --prepare.'
)
_TABLE = flags.DEFINE_string('table', '', 'Print the tables of a result file.')
_PART = flags.DEFINE_string('part', '', 'Run only this part, SECTION/SIDE.')
_RESULT = flags.DEFINE_string('result', '', 'File of the results of --part.')


def main(argv: list[str]) -> None:
  """Runs what the flags ask for."""
  del argv
  # Here and in all processes, so that xjax need not be installed.
  sys.path.insert(0, str(HERE.parent))
  paths = str(HERE.parent), os.environ.get('PYTHONPATH')
  os.environ['PYTHONPATH'] = os.pathsep.join(filter(None, paths))
  # So that the peak is what a step needs, and torch finds memory.
  os.environ['XLA_PYTHON_CLIENT_PREALLOCATE'] = 'false'
  if _TABLE.value:
    print(markdown(json.loads(pathlib.Path(_TABLE.value).read_bytes())))
  elif _PREPARE.value:
    prepare(pathlib.Path(_PREPARE.value))
  elif _PART.value:
    run_here(*_PART.value.split('/', 1))
  else:
    unknown = sorted(set(_ONLY.value) - set(_SECTIONS))
    if unknown:
      sys.exit(f'--only={unknown[0]}: must be of {", ".join(_SECTIONS)}')
    sys.exit(run_all())


def prepare(folder: pathlib.Path) -> None:
  """Writes the files of --inputs that the sections of --only need."""
  # Before JAX is imported, so that the values are those of the CPU.
  os.environ['JAX_PLATFORMS'] = 'cpu'
  import accelerator_checks
  import accelerator_compare
  import accelerator_minilm
  import numpy as np

  def write(name: str, arrays: dict[str, np.ndarray]) -> None:
    temporary = folder / f'.tmp.{name}'
    np.savez_compressed(temporary, **arrays)
    os.replace(temporary, folder / name)
    print(f'{folder / name}: {(folder / name).stat().st_size / 1e6:.1f} MB')

  folder.mkdir(parents=True, exist_ok=True)
  if 'checks' in _ONLY.value:
    chosen = accelerator_checks.checks()
    write('checks.npz', accelerator_compare.prepare(chosen, _TINY.value))
  sources = _DATA.value, _LABELS.value, _ENCODER.value
  if 'minilm' not in _ONLY.value:
    return
  if _TINY.value:
    write('minilm.npz', accelerator_minilm.tiny_inputs())
  elif all(sources):
    write('minilm.npz', accelerator_minilm.prepare(*sources))
  else:
    print('no minilm.npz: it needs --data, --labels and --encoder')


def run_here(section: str, side: str) -> None:
  """Runs a part in this process."""
  earlier = json.loads(pathlib.Path(_OUT.value).read_bytes())
  part = Part(
    _TINY.value,
    pathlib.Path(_INPUTS.value),
    earlier,
    pathlib.Path(_RESULT.value),
  )
  try:
    PARTS[section][side](part)
  except (Skipped, ModuleNotFoundError) as reason:
    part.add(skipped=str(reason))


def run_all() -> int:
  """Runs the parts of the chosen sections; returns the exit status."""
  start, out = time.perf_counter(), pathlib.Path(_OUT.value)
  results: dict[str, Any] = {'tiny': _TINY.value, 'sections': {}}
  with tempfile.TemporaryDirectory() as folder:
    inputs = pathlib.Path(_INPUTS.value or folder).absolute()
    results['device'] = run_part('device/xjax', inputs, results, 120)
    if 'platform' not in results['device']:
      print(results['device'].get('error', 'JAX does not start'))
      return 1
    on_cpu = results['device']['platform'] == 'cpu'
    if on_cpu and not _TINY.value and set(_ONLY.value) - {'checks'}:
      print('this machine has no accelerator: use --tiny, or --only=checks')
      return 1
    if not _INPUTS.value:
      words = f'--prepare={folder}', f'--only={",".join(_ONLY.value)}'
      done = subprocess.run([*command(), *words])
      if done.returncode:
        return 1
    for name, limit in ORDER.items():
      section, side = name.split('/', 1)
      if section not in _ONLY.value:
        continue
      if _TINY.value and name in LARGE_ONLY:
        continue
      left = 60 * _MINUTES.value - (time.perf_counter() - start)
      if left < _LEAST_SECONDS:
        result = {'status': 'skipped', 'skipped': 'no time was left'}
      else:
        result = run_part(name, inputs, results, min(limit, left))
      results['sections'].setdefault(section, {})[side] = result
      results['bounds'] = bounds(results)
      results['minutes'] = (time.perf_counter() - start) / 60
      write_json(out, results)
      reason = result.get('skipped') or result.get('error', '')
      line = f'{name}: {result["status"]}, {result.get("took", 0):.0f} s'
      print(': '.join([line, *reason.splitlines()[-1:]]), flush=True)
  print(markdown(results))
  # torch may not be able to compile in time.
  failed = any(
    part['status'] in ('failed', 'stopped')
    for sides in results['sections'].values()
    for side, part in sides.items()
    if not side.endswith('compiled')
  )
  return int(failed or not all(x['ok'] for x in results['bounds']))


def run_part(
  name: str, inputs: pathlib.Path, results: dict[str, Any], limit: float
) -> dict[str, Any]:
  """Runs a part in a process, and returns its results, also if it fails."""
  with tempfile.TemporaryDirectory() as folder:
    path, log = pathlib.Path(folder, 'result'), pathlib.Path(folder, 'log')
    earlier = pathlib.Path(folder, 'earlier')
    write_json(earlier, results)
    words = f'--part={name}', f'--result={path}', f'--out={earlier}'
    start = time.perf_counter()
    with open(log, 'w') as file:
      # In a session of its own, so that what it has started ends with it.
      process = subprocess.Popen(
        [*command(), *words, f'--inputs={inputs}'],
        stdout=file,
        stderr=file,
        start_new_session=True,
      )
      try:
        status = 'failed' if process.wait(limit) else 'done'
      except subprocess.TimeoutExpired:
        status = 'stopped'
      finally:
        end(process)
    result = json.loads(path.read_bytes()) if path.exists() else {}
    if status == 'done' and 'skipped' in result:
      status = 'skipped'
    if status == 'failed':
      lines = log.read_text(errors='replace').strip().splitlines()
      result['error'] = '\n'.join(lines[-12:])
    if status == 'stopped':
      result['error'] = f'stopped after {limit:.0f} seconds'
    took = time.perf_counter() - start
    return {'status': status, 'took': took, **result}


def end(process: subprocess.Popen) -> None:
  """Ends a process and all that it has started."""
  try:
    os.killpg(process.pid, signal.SIGKILL)
  except ProcessLookupError:
    pass
  process.wait()


def command() -> list[str]:
  """Returns the command of this script in another process."""
  return [sys.executable, __file__] + ['--tiny'] * _TINY.value


if __name__ == '__main__':
  app.run(main)
