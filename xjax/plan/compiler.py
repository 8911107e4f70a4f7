"""Compiles programs for devices that need not be here.

The compilers of TPUs and GPUs also run on a machine without such a device. Each
runs in a process of its own, because two of them cannot share a process.
"""

from collections.abc import Callable, Mapping, Sequence
import contextlib
import dataclasses
import importlib.metadata
import importlib.util
import math
import os
import pickle
import re
import subprocess
import sys
import tempfile
import time
from typing import Any

import jax
from jax.experimental import topologies
from jax.sharding import NamedSharding

from xjax.core.errors import ConfigError, UserError
from xjax.core.mesh import DATA
from xjax.core.progress import Progress
from xjax.plan.chips import Chip, Platform
from xjax.plan.costs import Collective, compiled_collectives, operations

# Traces a program for the given devices, under a mesh. It must be a function
# of a module, or a functools.partial of one, so that a process can read it.
Program = Callable[[Sequence[jax.Device]], jax.stages.Traced]

INSTALL = "pip install 'xjax[chips]'"
_PACKAGES = {
  Platform.TPU: ('libtpu',),
  Platform.GPU: ('jax-cuda12-plugin', 'jax-cuda13-plugin'),
  Platform.CPU: ('jaxlib',),
}
_HOST = 8  # GPUs of a host
# The module of --config=FILE, which may define classes. It cannot be imported
# by this name.
_CONFIG = 'config_config'
_TORUS = 'v4', 'v5p'  # three axes
_SHAPES = 'slices have shapes such as 4x4 (v5e, v6e) and 2x2x2 (v4, v5p)'
_OUT_OF_MEMORY = re.compile(r'([\d.]+)([KMG])\)? exceeds')


@dataclasses.dataclass(frozen=True)
class Target:
  """Describes the devices for which programs are compiled."""

  chip: Chip
  devices: int
  topology: str = ''  # the shape of a slice of TPUs, such as 4x4
  slices: int = 1  # slices of TPUs, or hosts of GPUs


def make_target(
  chip: Chip, devices: int, topology: str = '', slices: int = 0
) -> Target:
  """Returns a target; a ConfigError if there are no such devices.

  If a topology is given, devices may be 0.
  """
  if chip.platform is Platform.TPU:
    axes = 3 if chip.name in _TORUS else 2
    if slices > 1 and not topology:
      raise ConfigError(f'--slices={slices}: --topology is missing; {_SHAPES}')
    topology, slices = topology or 'x'.join('1' * axes), slices or 1
    sizes = [int(n) if n.isdecimal() else 0 for n in topology.split('x')]
    count = slices * math.prod(sizes)
    if len(sizes) != axes:
      raise ConfigError(f'--topology={topology}: {chip.name}: {_SHAPES}')
    if not count or devices not in (0, count):
      raise ConfigError(
        f'--topology={topology} --slices={slices} has {count} devices'
        + f', not {devices}' * bool(devices)
        + f'; {_SHAPES}'
      )
    return Target(chip, count, topology, slices)
  if topology or slices:
    raise ConfigError(
      f'--topology and --slices work only with TPUs; {chip.name} has --devices'
    )
  hosts = -(-devices // _HOST) if chip.platform is Platform.GPU else 1
  if hosts > 1 and devices % _HOST:
    raise ConfigError(
      f'--devices={devices}: hosts have {_HOST} GPUs; choose at most {_HOST}, '
      f'or a multiple of {_HOST}'
    )
  return Target(chip, devices, slices=hosts)


@dataclasses.dataclass(frozen=True)
class Compiled:
  """Holds what a compiler says of a program; bytes are those of a device."""

  arguments: int
  outputs: int
  aliases: int  # of outputs that overwrite arguments
  temporaries: int
  code: int
  operations: float  # of a device, in matrix products
  collectives: tuple[Collective, ...]
  seconds: float  # for which it was compiled

  @property
  def total(self) -> int:
    new = self.outputs - self.aliases
    return self.arguments + new + self.temporaries + self.code


@dataclasses.dataclass(frozen=True)
class Refused:
  """Says why a compiler refused a program."""

  reason: str

  @property
  def total(self) -> float:
    """Returns the bytes that the program needs, if that is the reason."""
    units = {'K': 2**10, 'M': 2**20, 'G': 2**30}
    sizes = _OUT_OF_MEMORY.findall(self.reason)
    return max((float(n) * units[u] for n, u in sizes), default=math.inf)


def compiler_of(platform: Platform) -> str:
  """Returns a compiler and its version; '' if it is not installed."""
  for package in _PACKAGES[platform]:
    with contextlib.suppress(importlib.metadata.PackageNotFoundError):
      version = importlib.metadata.version(package)
      return f'{package} {version}, jax {jax.__version__}'
  return ''


def compiled(
  target: Target, programs: Mapping[str, Program]
) -> dict[str, Compiled | Refused]:
  """Compiles programs in another process, one after the other.

  The process has the environment that the compiler needs, and its output is not
  shown. A program that ends the process is Refused, too.

  Raises:
    UserError: there is no compiler, or it does not know such devices.
  """
  if not compiler_of(target.chip.platform):
    raise UserError(f'--chip={target.chip.name}: {INSTALL}')
  found: dict[str, Compiled | Refused] = {}
  work = f'compiling for {target.chip.name}'
  with Progress(work, len(programs), unit='program') as bar:
    while missing := [x for x in programs if x not in found]:
      fault = _in_child(target, {x: programs[x] for x in missing}, found, bar)
      if fault:
        rest = [x for x in missing if x not in found]
        found[rest[0]] = Refused(fault)
        bar.update()
  return found


def _in_child(
  target: Target,
  programs: Mapping[str, Program],
  found: dict[str, Compiled | Refused],
  bar: Progress,
) -> str:
  """Adds what a process compiles; returns why it ended, '' if it is done."""
  # Not the module itself: classes of a main module cannot be sent.
  code = 'from xjax.plan.compiler import serve; serve()'
  with (
    tempfile.TemporaryFile() as work,
    tempfile.TemporaryFile() as log,
  ):
    config_file = getattr(sys.modules.get(_CONFIG), '__file__', None)
    pickle.dump(config_file, work)
    pickle.dump((target, programs), work)
    work.seek(0)
    child = subprocess.Popen(
      [sys.executable, '-c', code],
      stdin=work,
      stdout=subprocess.PIPE,
      stderr=log,
      env=_environment(target),
    )
    try:
      for _ in programs:
        name, result = pickle.load(child.stdout)
        if not name:
          where = f'--topology={target.topology}' * bool(target.topology)
          advice = _SHAPES if where else INSTALL
          raise ConfigError(
            f'--chip={target.chip.name} {where}: {result.reason}; {advice}'
          )
        found[name] = result
        bar.update()
      return ''
    except EOFError:
      status = child.wait()
      log.seek(0)
      lines = log.read().decode(errors='replace').strip().splitlines()
      reason = '\n'.join(lines[-3:])
      return f'the compiler ended with status {status}: {reason}'
    finally:
      child.kill()
      child.communicate()


def _environment(target: Target) -> dict[str, str]:
  values = dict(os.environ, JAX_PLATFORMS='cpu')
  values['PYTHONPATH'] = os.pathsep.join(x or os.getcwd() for x in sys.path)
  if target.chip.platform is Platform.CPU:
    return values | {'JAX_NUM_CPU_DEVICES': str(target.devices)}
  # JAX could write programs for absent devices to its cache, but not read them.
  values['JAX_ENABLE_COMPILATION_CACHE'] = 'false'
  flags = values.pop('XLA_FLAGS', '')
  if target.chip.platform is Platform.GPU:
    # Without a GPU there is no autotuning, which products of Triton need.
    flags += ' --xla_gpu_enable_triton_gemm=false'
    return values | {'XLA_FLAGS': flags}
  # libtpu ends at a flag that it does not know; it has LIBTPU_INIT_ARGS. It
  # would ask the machine's metadata server which TPUs there are, and would
  # refuse to compile while another process uses them.
  return values | {
    'TPU_SKIP_MDS_QUERY': '1',
    'TPU_WORKER_HOSTNAMES': 'localhost',
    'ALLOW_MULTIPLE_LIBTPU_LOAD': 'true',
  }


def serve() -> None:
  """Compiles the programs of standard input; writes results to its output."""
  results = os.fdopen(os.dup(1), 'wb')
  os.dup2(2, 1)  # compilers print
  if config_file := pickle.load(sys.stdin.buffer):
    spec = importlib.util.spec_from_file_location(_CONFIG, config_file)
    sys.modules[_CONFIG] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(sys.modules[_CONFIG])
  target, programs = pickle.load(sys.stdin.buffer)

  def send(*result: Any) -> None:
    pickle.dump(result, results)
    results.flush()

  try:
    devices = _devices(target)
  except Exception as error:  # compilers raise different errors
    return send('', Refused(str(error)))
  for name, program in programs.items():
    try:
      send(name, _compile(program, devices))
    except Exception as error:
      send(name, Refused(f'{type(error).__name__}: {error}'))


def _devices(target: Target) -> list[jax.Device]:
  chip = target.chip
  if chip.platform is Platform.CPU:
    return jax.devices()
  if chip.platform is Platform.GPU:
    from jax._src.cudnn import fused_attention_stablehlo

    # JAX asks cuDNN itself for its version, but only a GPU's host has cuDNN.
    fused_attention_stablehlo.check_cudnn_version = lambda: 90800
    each = target.devices // target.slices
    options = {'target_config': chip.target}
    options['topology'] = f'{target.slices}x1x{each}'
    name, platform = chip.name, 'cuda'
  else:
    name, platform = f'{chip.name}:{target.topology}', 'tpu'
    options = {'num_slices': target.slices}
    if target.devices == target.slices:  # one TPU, not all of a host
      options['chips_per_host_bounds'] = 1, 1, 1
    if chip.name == 'v4':  # both cores of a chip are one device
      options['chip_config_name'] = 'megacore'
  return topologies.get_topology_desc(
    topology_name=name, platform=platform, **options
  ).devices


def _compile(program: Program, devices: Sequence[jax.Device]) -> Compiled:
  start = time.monotonic()
  traced = program(devices)
  done = traced.lower().compile()
  seconds = time.monotonic() - start
  shardings = jax.tree.leaves(done.input_shardings)
  mesh = next(x.mesh for x in shardings if isinstance(x, NamedSharding))
  memory, platform = done.memory_analysis(), devices[0].platform
  # TPUs of a slice are linked, whichever host they have.
  node = 'slice_index' if platform == 'tpu' else 'process_index'
  nodes = [getattr(x, node, 0) for x in mesh.devices.flat]
  return Compiled(
    memory.argument_size_in_bytes,
    memory.output_size_in_bytes,
    memory.alias_size_in_bytes,
    memory.temp_size_in_bytes,
    memory.generated_code_size_in_bytes,
    operations(traced.jaxpr, platform, mesh.shape[DATA]),
    tuple(compiled_collectives(done.as_text(), dict(enumerate(nodes)))),
    seconds,
  )
