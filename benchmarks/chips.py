r"""Compiles the programs of large runs for pods and nodes that are not here.

  python benchmarks/chips.py --out=FILE.json [--only=NAME]
  python benchmarks/chips.py --table=FILE.json

Needs the extra `chips`, 16 GiB, and half an hour. Each run is compiled in a
process of its own, as `xjax train --plan` does, with a time limit (--limit).
FILE.json has the results; a second start compiles only the runs that it lacks
or that were refused. The table is printed at the end, and by --table alone.
"""

import dataclasses
import functools
import json
import os
import pathlib
import shlex
import signal
import subprocess
import sys
from typing import Any

from absl import app, flags

_OUT = flags.DEFINE_string('out', '', 'File of results, which is continued.')
_ONLY = flags.DEFINE_multi_string('only', [], 'Name of a run; default: all.')
_TABLE = flags.DEFINE_string('table', '', 'Print the table of a file, only.')
_DATA = flags.DEFINE_string(
  'data', '', 'Folder of EURLEX57K, for runs that read parents of labels.'
)
_LIMIT = flags.DEFINE_integer('limit', 3600, 'Seconds for a run.')
_ROW = flags.DEFINE_string('row', '', 'Used by this script: compile here.')

_AMAZON_3M = 2_812_281, 1_717_899  # labels, documents
_AMAZON_670K = 670_091, 490_449
_EURLEX57K = 4_271, 45_000
_HUNDRED_MILLION = 100_000_000, 10_000_000


@dataclasses.dataclass(frozen=True)
class Run:
  """A run on some devices."""

  config: str
  chip: str
  devices: int | str  # the shape of a slice of TPUs
  sizes: tuple[int, ...] = ()  # labels and documents; () reads the corpus
  slices: int = 1
  label: int = 1  # devices along the label axis
  fields: tuple[tuple[str, Any], ...] = ()
  reads: bool = False  # EURLEX57K

  @property
  def name(self) -> str:
    words = [self.config, *map(str, self.sizes[:1]), self.where]
    return '/'.join(words) + '/by_label' * (self.label > 1)

  @property
  def where(self) -> str:
    slices = f'{self.slices}x ' if self.slices > 1 else ''
    return f'{slices}{self.chip} {self.devices}'

  @property
  def values(self) -> dict[str, Any]:
    """Returns fields of the config and their values."""
    folder = {'data.dir': _DATA.value} if self.reads else {}
    return {'mesh.label': self.label, **dict(self.fields), **folder}

  @property
  def target(self) -> dict[str, Any]:
    """Returns the flags of the devices."""
    if isinstance(self.devices, int):
      return {'devices': self.devices}
    return {'topology': self.devices, 'slices': self.slices}

  @property
  def command(self) -> str:
    names = {'plan_labels': 0, 'plan_documents': 1}
    flag_values = {
      'config': self.config,
      **{f'config.{path}': x for path, x in self.values.items()},
      'chip': self.chip,
      **self.target,
      **dict(zip(names, self.sizes)),
    }
    words = [f'--{name}={value}' for name, value in flag_values.items()]
    return shlex.join(['xjax', 'train', '--plan', *words])


_LARGE_BATCH = ('train.batch_size', 2048), ('eval.batch_size', 2048)
_RUNS = (
  Run('quickstart', 'v5e', '1x1'),
  *(
    Run(config, *where, _EURLEX57K)
    for config in ('eurlex57k_bert', 'eurlex57k_bigru_lwan')
    for where in (('v5e', '2x2'), ('h100-80', 1))
  ),
  *(
    Run('eurlex57k_zero_bigru_lwan:graph', *where, reads=True)
    for where in (('v5e', '2x2'), ('h100-80', 1))
  ),
  *(
    Run('xc_cascadexml:amazon_670k', *where, _AMAZON_670K)
    for where in (('v5e', '4x4'), ('h100-80', 8))
  ),
  *(
    Run('amazon_3m_like', *where, _AMAZON_3M, **others)
    for *where, others in (
      ('h100-80', 1, {}),
      ('h100-80', 8, {}),
      ('h100-80', 8, {'label': 8}),
      ('v5e', '4x4', {}),
      ('v5e', '4x4', {'slices': 2}),
    )
  ),
  *(
    Run('amazon_3m_like', *where, _HUNDRED_MILLION, fields=_LARGE_BATCH)
    for where in (
      *(('v5e', '16x16'), ('v5p', '2x2x2'), ('v6e', '4x4')),
      ('h100-80', 64),
    )
  ),
)
_BY_NAME = {run.name: run for run in _RUNS}
_COLUMNS = (
  'run',
  'labels',
  'devices',
  'mesh (data x label)',
  'GiB of a device',
  'sent, MB: within, beyond',
  'bound of a step',
  'compiled in',
)


def _compiled(run: Run) -> dict[str, Any]:
  """Returns the figures of a run: of its longest step, and of top-k."""
  from xjax.data.load import load_corpus
  from xjax.plan.chips import CHIPS
  from xjax.plan.compiler import Refused, compiled, compiler_of, make_target
  from xjax.plan.plan import LONGEST, RANKING, RunPlan, planned_mesh
  from xjax.plan.programs import ranking, state_parts, train_step
  from xjax.plan.sizes import assumed_sizes, corpus_sizes
  from xjax.run.named_configs import named_config
  from xjax.sweep.trials import override
  from xjax.train.neural_train import Dtype

  config = override(named_config(run.config), run.values)
  target = make_target(CHIPS[run.chip], **{'devices': 0, **run.target})
  if run.sizes:
    sizes = assumed_sizes(config, *run.sizes)
  else:
    sizes = corpus_sizes(config, load_corpus(config.data, config.seed))
  mesh = planned_mesh(config, target.devices)
  programs = {
    LONGEST: functools.partial(train_step, config, sizes, sizes.longest),
    RANKING: functools.partial(ranking, config, sizes),
  }
  # Unlike make_plan, without the step in float32, which takes long to compile.
  plan = RunPlan(
    *(config, sizes, target, mesh, Dtype.BFLOAT16, None),
    *state_parts(config, sizes, mesh),
    compiler_of(target.chip.platform),
    compiled(target, programs),
  )
  step, memory = plan.programs[LONGEST], target.chip.memory / 2**30
  figures = {
    'labels': sizes.labels,
    'mesh': ' x '.join(str(n) for n in plan.mesh.shape.values()),
    'compiler': plan.compiler,
    'memory_gib': memory,
  }
  if isinstance(step, Refused):
    return figures | {'refused': step.reason}
  bound = plan.bound(LONGEST)
  return figures | {
    'gib': {name: x.total / 2**30 for name, x in plan.programs.items()},
    'near_mb': sum(x.near for x in step.collectives) / 1e6,
    'far_mb': sum(x.far for x in step.collectives) / 1e6,
    'bound_ms': 1000 * bound.seconds,
    'bound_by': bound.by,
    'seconds': step.seconds,
  }


def _in_child(run: Run) -> dict[str, Any]:
  """Compiles in a process, which ends after the limit with all its own."""
  command = [sys.executable, __file__, f'--row={run.name}']
  command.append(f'--data={_DATA.value}')
  with subprocess.Popen(
    command,
    stdout=subprocess.PIPE,
    env=os.environ | {'JAX_PLATFORMS': 'cpu'},
    start_new_session=True,
    text=True,
  ) as child:
    try:
      text, _ = child.communicate(timeout=_LIMIT.value)
    except subprocess.TimeoutExpired:
      os.killpg(child.pid, signal.SIGKILL)
      return {'refused': f'not compiled within {_LIMIT.value} s'}
  if child.returncode:
    return {'refused': f'ended with {child.returncode}'}
  return json.loads(text.splitlines()[-1])


def _table(results: dict[str, dict[str, Any]]) -> str:
  """Returns the results as a table in Markdown."""
  lines = [_COLUMNS, ['---'] * len(_COLUMNS)]
  for name, found in results.items():
    run, labels = _BY_NAME[name], found.get('labels')
    row = [run.config, f'{labels:,}' if labels else '', run.where]
    row.append(found.get('mesh', ''))
    if 'refused' in found:
      lines.append([*row, found['refused'].splitlines()[0], '', '', ''])
      continue
    used = next(iter(found['gib'].values()))
    lines.append(
      [
        *row,
        f'{used:.2f} of {found["memory_gib"]:.0f}',
        f'{found["near_mb"]:,.1f}, {found["far_mb"]:,.1f}',
        f'{found["bound_ms"]:.3g} ms, {found["bound_by"]}',
        f'{found["seconds"]:,.0f} s',
      ]
    )
  compilers = {x['compiler']: None for x in results.values() if 'compiler' in x}
  table = '\n'.join(f'| {" | ".join(row)} |' for row in lines)
  return f'{table}\n\nCompilers: {"; ".join(compilers)}.'


def main(_: list[str]) -> None:
  """Compiles the runs one after the other, and prints the table."""
  if _ROW.value:
    print(json.dumps(_compiled(_BY_NAME[_ROW.value])))
    return
  path = pathlib.Path(_TABLE.value or _OUT.value)
  if _TABLE.value:
    print(_table(json.loads(path.read_text())))
    return
  if not _OUT.value:
    raise app.UsageError('--out is missing: give the file of results')
  for name in _ONLY.value:
    if name not in _BY_NAME:
      known = '\n'.join(_BY_NAME)
      raise app.UsageError(f'--only={name}: the runs are\n{known}')
  results = json.loads(path.read_text()) if path.exists() else {}
  for run in _RUNS:
    done = run.name in results and 'refused' not in results[run.name]
    if run.name not in (_ONLY.value or _BY_NAME) or done:
      continue
    if run.reads and not _DATA.value:
      print(f'{run.name} is left out: it needs --data')
      continue
    print(run.command, flush=True)
    results[run.name] = _in_child(run)
    path.write_text(json.dumps(results, indent=1))
  results = {name: results[name] for name in _BY_NAME if name in results}
  print(_table(results))


if __name__ == '__main__':
  app.run(main)
