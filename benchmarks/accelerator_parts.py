"""Runs one part of accelerator.py in this process, and notes its results.

A part is a section and a side, such as bert/transformers. The parts of other
libraries start no backend of JAX, so that they have the device alone.
"""

from collections.abc import Callable
import dataclasses
import functools
import importlib.util
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time
from typing import Any

from measurement import HERE, Side


class Skipped(Exception):
  """Says why a part cannot run here."""


@dataclasses.dataclass
class Part:
  """Holds what a part needs, and its results so far."""

  tiny: bool
  inputs: pathlib.Path  # the folder that --prepare writes
  earlier: dict[str, Any]  # the results of earlier parts
  result: pathlib.Path  # file for the results of this part
  found: dict[str, Any] = dataclasses.field(default_factory=dict)

  def add(self, **results: Any) -> None:
    """Notes results, which stay if the part is stopped afterwards."""
    self.found |= results
    write_json(self.result, self.found)

  @property
  def seconds(self) -> float:
    """Returns how long a step is timed."""
    return 0.05 if self.tiny else 5.0

  @property
  def torch_device(self) -> str:
    gpu = self.earlier['device']['platform'] == 'gpu'
    return 'cuda' if gpu else 'cpu'

  def arrays(self, name: str) -> Any:
    """Returns the arrays of a file that --prepare has written."""
    import numpy as np

    path = self.inputs / name
    if not path.exists():
      raise Skipped(f'the folder of --inputs has no {name}')
    return np.load(path, allow_pickle=False)


def write_json(path: pathlib.Path, values: Any) -> None:
  """Writes a file under a temporary name, and renames it."""
  text = json.dumps(values, indent=1)
  temporary = path.with_name(f'.{path.name}.tmp')
  temporary.write_text(text)
  os.replace(temporary, path)


def device(part: Part) -> None:
  """Notes the device, its peak rates and the versions of libraries."""
  import flax
  import jax

  from xjax.core.errors import ConfigError
  from xjax.plan.chips import chip_named

  first = jax.devices()[0]
  part.add(
    platform=first.platform,
    kind=first.device_kind,
    versions={
      'python': sys.version.split()[0],
      'jax': jax.__version__,
      'flax': flax.__version__,
    },
  )
  try:
    chip = chip_named('')
  except ConfigError as error:
    part.add(chip=None, note=str(error))
  else:
    part.add(chip=dataclasses.asdict(chip) | {'platform': chip.platform.value})


def checks(part: Part) -> None:
  """Compares values of this device with those of a CPU."""
  from accelerator_checks import checks
  from accelerator_compare import compare

  rows = []
  for row in compare(checks(), part.arrays('checks.npz')):
    rows.append(row)
    part.add(rows=rows)


def bert(part: Part) -> None:
  """Times our step of BERT-base at 512 tokens."""
  from accelerator_steps import bert_work, measured_step

  work = bert_work(part.tiny)
  result = measured_step(work, part.seconds)
  part.add(**result, operations=work.operations)
  part.add(**share_of_peak(part, work.operations, result['seconds']))


def share_of_peak(
  part: Part, operations: float, seconds: float
) -> dict[str, float]:
  """Returns the share of the bfloat16 peak; {} if the chip is not known."""
  chip = part.earlier['device'].get('chip')
  if not chip:
    return {}
  return {'share_of_peak': operations / seconds / chip['bfloat16']}


def bert_peer(part: Part, compiled: bool) -> None:
  """Times the step of transformers, in bfloat16 by autocast, with SDPA."""
  needs('torch', 'transformers')
  from accelerator_steps import bert_sizes

  sizes = bert_sizes(part.tiny) | {
    'device': part.torch_device,
    'dtype': 'bfloat16',
    'compiled': compiled,
    'frozen': False,
  }
  side = Side([sys.executable, HERE / 'bert_peer.py', json.dumps(sizes)])
  row = 'step', 'base', sizes['tokens'], 'train'
  start = time.perf_counter()
  if not side.ask(*row, 2):
    raise Skipped('torch.compile failed')
  part.add(compile_seconds=time.perf_counter() - start)
  rounds = repeated(lambda: side.ask(*row, 3), part.seconds)
  part.add(**rounds, documents_per_second=sizes['batch'] / rounds['seconds'])
  side.close()


def needs(*packages: str) -> None:
  """Raises Skipped if a package is not installed."""
  for name in packages:
    if importlib.util.find_spec(name) is None:
      raise Skipped(f'{name} is not installed')


def repeated(ask: Callable[[], Any], seconds: float) -> dict[str, Any]:
  """Returns the median seconds of a step over answers for some seconds."""
  start, steps = time.perf_counter(), []
  while not steps or time.perf_counter() - start < seconds:
    steps += ask()
  return {'seconds': sorted(steps)[len(steps) // 2], 'rounds': steps}


def ova_head(part: Part, storage: str) -> None:
  """Times a step of the head of 2.8 million labels alone, by chunk size."""
  from accelerator_steps import amazon_sizes, measured_head

  from xjax.networks.rows.storage import Storage

  kind, sizes = Storage(storage), amazon_sizes(part.tiny)
  weights, heads = sizes['labels'] * sizes['dim'], []
  operations, moved = 6 * weights * sizes['batch'], 2 * kind.bytes * weights
  chip = part.earlier['device'].get('chip')
  # From small to large, because the peak of the process only grows. The last is
  # an eighth of the labels, as in ELMO.
  for chunk in (1000, 3000) if part.tiny else (8192, 65_536, 351_536):
    head = {'chunk': chunk}
    try:
      head |= measured_head(kind, chunk, sizes, part.seconds / 3)
    except Exception as error:  # a large chunk may not fit
      head |= {'error': f'{type(error).__name__}: {str(error)[:500]}'}
    else:
      head |= share_of_peak(part, operations, head['seconds'])
      head['epoch_minutes'] = _epoch_minutes(sizes, head['seconds'])
      if chip:
        rate = moved / head['seconds']
        head['share_of_bandwidth'] = rate / chip['bandwidth']
    heads.append(head)
    part.add(heads=heads)
  if all('error' in head for head in heads):
    raise RuntimeError(heads[0]['error'])


def _epoch_minutes(sizes: dict[str, int], seconds: float) -> float:
  return -(-sizes['documents'] // sizes['batch']) * seconds / 60


def ova_head_step(part: Part, storage: str) -> None:
  """Times the step of BERT-base and the head, with the fastest chunk size."""
  from accelerator_steps import amazon_sizes, amazon_work, measured_step

  from xjax.networks.rows.storage import Storage

  alone = part.earlier['sections']['ova_head'].get(storage, {})
  timed = [head for head in alone.get('heads', []) if 'seconds' in head]
  if not timed:
    raise Skipped('the head alone was not timed')
  chunk = min(timed, key=lambda head: head['seconds'])['chunk']
  work = amazon_work(part.tiny, Storage(storage), chunk)
  result = measured_step(work, part.seconds)
  minutes = _epoch_minutes(amazon_sizes(part.tiny), result['seconds'])
  part.add(**result, chunk=chunk, epoch_minutes=minutes)
  part.add(**share_of_peak(part, work.operations, result['seconds']))


def ova_head_peer(part: Part) -> None:
  """Times a dense layer of torch in bfloat16, in eight chunks of labels."""
  needs('torch')
  from accelerator_steps import amazon_sizes

  sizes = amazon_sizes(part.tiny)
  chunk = -(-sizes['labels'] // 8)
  numbers = (sizes[n] for n in ('labels', 'dim', 'batch'))
  command = [sys.executable, HERE / 'ova_head_peer.py', part.torch_device]
  side = Side([*command, *map(str, numbers), str(chunk)])
  for _ in range(2):
    side.ask('step')
  part.add(**repeated(lambda: [side.ask('step')], part.seconds), chunk=chunk)
  part.add(peak_bytes=side.ask('memory'))
  side.close()


def bigru_lwan(part: Part) -> None:
  """Times our step of BiGRU-LWAN on documents of 2,500 words."""
  from accelerator_steps import lwan_work, measured_step

  for dtype in 'bfloat16', 'float32':
    work = lwan_work(part.tiny, dtype)
    part.add(**{dtype: measured_step(work, part.seconds)})


def bigru_lwan_peer(part: Part) -> None:
  """Times the step of torch, whose GRU is cuDNN's on GPUs."""
  needs('torch')
  from accelerator_steps import lwan_sizes

  sizes = lwan_sizes(part.tiny)
  script = HERE / 'accelerator_lwan_peer.py'
  for dtype in 'bfloat16', 'float32':
    words = part.torch_device, dtype, json.dumps(sizes)
    side = Side([sys.executable, script, *words])
    try:
      side.ask('step', 2)
      result = repeated(lambda side=side: side.ask('step', 2), part.seconds)
      result['peak_bytes'] = side.ask('memory')
    except SystemExit as error:  # of this dtype; the other may run
      part.add(**{dtype: {'error': str(error)}})
      continue
    result['documents_per_second'] = sizes['batch'] / result['seconds']
    part.add(**{dtype: result})
    side.close()


def minilm(part: Part, dtype: str) -> None:
  """Trains MiniLM on EURLEX57K by the recipe of eurlex57k_minilm."""
  from accelerator_minilm import train

  inputs = part.arrays('minilm.npz')
  part.add(**train({name: inputs[name] for name in inputs}, dtype))


def quickstart(part: Part) -> None:
  """Trains the quickstart by its command, and reads the metrics of dev."""
  with tempfile.TemporaryDirectory() as folder:
    command = [sys.executable, '-m', 'xjax', 'train', '--config=quickstart']
    command.append(f'--workdir={folder}/run')
    if part.tiny:
      names = 'steps', 'judge_every', 'checkpoint_every'
      command += [f'--config.train.{name}=4' for name in names]
    start = time.perf_counter()
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
      lines = (done.stdout + done.stderr).strip().splitlines()
      if 'ModuleNotFoundError' in lines[-1]:
        raise ModuleNotFoundError(lines[-1])
      raise RuntimeError('\n'.join(lines[-10:]))
    part.add(minutes=(time.perf_counter() - start) / 60)
    path = pathlib.Path(folder, 'run', 'eval', 'dev', 'metrics.json')
    metrics = json.loads(path.read_bytes())['xjax']['all']
    part.add(metrics={f'dev {n}': metrics[n] for n in ('RP@5', 'nDCG@5')})


def plan(part: Part) -> None:
  """Compares the plans of the steps with what was measured."""
  from accelerator_steps import amazon_work, bert_work, lwan_work, planned

  from xjax.networks.rows.storage import Storage

  rows = []

  def earlier(section: str, side: str) -> dict[str, Any]:
    return part.earlier['sections'].get(section, {}).get(side, {})

  lwan = earlier('bigru_lwan', 'xjax').get('bfloat16', {})
  measured = [
    ('BERT-base', bert_work(part.tiny), earlier('bert', 'xjax')),
    ('BiGRU-LWAN', lwan_work(part.tiny, 'bfloat16'), lwan),
  ]
  for name in 'bfloat16', 'float8':
    result = earlier('ova_head', f'{name}, BERT')
    work = amazon_work(part.tiny, Storage(name), result.get('chunk', 8192))
    measured.append((f'2.8 million labels, {name}', work, result))
  names = 'seconds', 'peak_bytes', 'program_bytes', 'argument_bytes'
  for name, work, result in measured:
    if 'seconds' in result:
      known = {n: result[n] for n in names}
      rows.append({'step': name} | known | planned(work))
      part.add(rows=rows)
  if not rows:
    raise Skipped('no step was measured before')


# Section -> side -> what it runs.
PARTS: dict[str, dict[str, Callable[[Part], None]]] = {
  'device': {'xjax': device},
  'checks': {'xjax': checks},
  'bert': {
    'xjax': bert,
    'transformers': functools.partial(bert_peer, compiled=False),
    'transformers, compiled': functools.partial(bert_peer, compiled=True),
  },
  'ova_head': {
    'bfloat16': functools.partial(ova_head, storage='bfloat16'),
    'float8': functools.partial(ova_head, storage='float8'),
    'bfloat16, BERT': functools.partial(ova_head_step, storage='bfloat16'),
    'float8, BERT': functools.partial(ova_head_step, storage='float8'),
    'torch': ova_head_peer,
  },
  'bigru_lwan': {'xjax': bigru_lwan, 'torch': bigru_lwan_peer},
  'minilm': {
    dtype: functools.partial(minilm, dtype=dtype)
    for dtype in ('bfloat16', 'float32')
  },
  'quickstart': {'xjax': quickstart},
  'plan': {'xjax': plan},
}
