"""A new run that begins with the parameters of another.

Parameters are matched by path, label rows by label id, word vectors by word and
a pretrained encoder's by piece: the other run may have had other labels and
another vocabulary. What of a label is not trained is this run's own, and so is
the head, where the other run's is of another kind. Where it is not, what this
run makes of descriptors is what it was there: the head is trained on that.
"""

from collections.abc import Iterable, Mapping, Sequence
import dataclasses
from typing import Any

from absl import logging
import jax
import jax.numpy as jnp
import numpy as np

from xjax.core.distributed import is_host0
from xjax.core.errors import ConfigError
from xjax.core.mesh import LABEL
from xjax.data.schema import LabelSpace
from xjax.train.checkpoint import intact_steps, read_meta, read_params
from xjax.train.inputs import Inputs
from xjax.train.state import (
  TrainState,
  by_path,
  from_paths,
  split_frozen,
)
from xjax.train.vocabulary_rows import matches, piece_rows, word_rows
from xjax.train.workdir import Workdir

WORD_VECTORS = 'embedding/table'
PIECE_VECTORS = 'encoder/embeddings/word'
DESCRIPTORS = 'head/descriptors'
_HEAD = 'head/'
_VOCABULARIES = {WORD_VECTORS: 'words', PIECE_VECTORS: 'pieces'}


@dataclasses.dataclass
class Report:
  """What became of each parameter.

  Attributes:
    loaded: path -> how much of it.
    fresh: paths that the other run does not have.
    skipped: path -> why it could not be used.
    unused: paths of the other run that this one does not have.
  """

  loaded: dict[str, str] = dataclasses.field(default_factory=dict)
  fresh: list[str] = dataclasses.field(default_factory=list)
  skipped: dict[str, str] = dataclasses.field(default_factory=dict)
  unused: list[str] = dataclasses.field(default_factory=list)

  def __str__(self) -> str:
    lines = [f'  loaded  {name}: {how}' for name, how in self.loaded.items()]
    lines += [f'  fresh   {name}' for name in self.fresh]
    lines += [f'  skipped {name}: {why}' for name, why in self.skipped.items()]
    lines += [f'  unused  {name}' for name in self.unused]
    return '\n'.join(lines)


def best_step(workdir: Workdir) -> int | None:
  """Step of the best checkpoint, else of the newest; None: there is none.

  The newest intact checkpoint knows which was the best. Should that one be
  lost, as after damage, a warning says that the newest is used.
  """
  steps = intact_steps(workdir.checkpoints, newest=1)
  if not steps:
    return None
  (newest,) = steps
  best = read_meta(workdir.checkpoints, newest)['best_step']
  if best is None:
    return newest
  if not (workdir.checkpoints / str(best)).is_dir():
    logging.warning(
      '%s: the best checkpoint, of step %d, is lost; that of step %d is used',
      workdir.path,
      best,
      newest,
    )
    return newest
  return best


def warm_start(
  state: TrainState, source: str, space: LabelSpace, inputs: Inputs
) -> tuple[TrainState, Workdir | None]:
  """Puts another run's parameters in a fresh state, and logs a report.

  Args:
    state: fresh; its parameters are used up.
    source: WORKDIR, for its best checkpoint (else the newest), or
      WORKDIR@step.
    space: labels of this run.
    inputs: of this run, for its vocabulary.

  Returns:
    The state, sharded as before.
    describer: the other run, where the head goes on with descriptors as they
      were there; None: it has none, or starts afresh.

  Raises:
    ConfigError: source names no checkpoint, or nothing of it fits.
    DataError: a file of the other workdir is damaged.
  """
  workdir, step = find_start(source)
  others = read_params(workdir.checkpoints, step)
  report, merged = Report(), by_path(state.params)
  labels = _trained_ids(space), _trained_ids(workdir.label_space())
  rows = {'labels': matches(*labels)}
  rows |= _vocabulary_rows(merged, others, inputs, workdir)
  own, same_head = _own_rows(state), _head_paths(merged) == _head_paths(others)
  describes = same_head and _width(merged) == _width(others) != ()
  for name, param in merged.items():
    other = others.pop(name, None)
    if other is None:
      report.fresh.append(name)
    elif name in own:
      report.skipped[name] = 'not trained: stays as this run has it'
    elif name.startswith(_HEAD) and not same_head:
      report.skipped[name] = 'means something else in a head of another kind'
    else:
      merged[name] = _merge(name, param, other, rows, report)
  report.unused = sorted(others)
  if not report.loaded:
    raise ConfigError(f'train.init_from={source}: none of it fits:\n{report}')
  if is_host0():
    logging.info('warm start from %s, step %d:\n%s', workdir.path, step, report)
  state = dataclasses.replace(state, params=from_paths(state.params, merged))
  return state, workdir if describes else None


def find_start(source: str) -> tuple[Workdir, int]:
  """The run and the step that train.init_from=WORKDIR[@step] names.

  Raises:
    ConfigError: there is no such checkpoint.
  """
  path, at, number = source.rpartition('@')
  if not at or not number.isdecimal():
    path, number = source, ''
  workdir = Workdir.at(path)
  steps = intact_steps(workdir.checkpoints)
  step = int(number) if number else best_step(workdir)
  if step is None:
    raise ConfigError(f'train.init_from={source}: no checkpoints there')
  if step not in steps:
    raise ConfigError(
      f'train.init_from={source}: no checkpoint of step {step}; there are '
      f'{", ".join(map(str, steps)) or "none"}'
    )
  return workdir, step


def _head_paths(params: Iterable[str]) -> set[str]:
  """What a head is made of, which tells its kind."""
  return {name for name in params if name.startswith(_HEAD)}


def _trained_ids(space: LabelSpace) -> Sequence[str]:
  return space.ids[: space.n_trained]


def _width(params: Mapping[str, Any]) -> tuple[int, ...]:
  """(E,) of descriptors; (): there are none."""
  return params[DESCRIPTORS].shape[1:] if DESCRIPTORS in params else ()


def _vocabulary_rows(
  ours: Mapping[str, jax.Array],
  theirs: Mapping[str, np.ndarray],
  inputs: Inputs,
  workdir: Workdir,
) -> dict[str, np.ndarray]:
  """Rows by kind of what both have a table of, unless all are the same."""
  if WORD_VECTORS in ours and WORD_VECTORS in theirs:
    return {'words': word_rows(inputs.vocab, workdir.vocabulary())}
  if PIECE_VECTORS not in ours or PIECE_VECTORS not in theirs:
    return {}
  tokenizer = workdir.subwords()
  same_size = ours[PIECE_VECTORS].shape == theirs[PIECE_VECTORS].shape
  if same_size and tokenizer.digest == inputs.vocab.digest:
    return {}
  return {'pieces': piece_rows(inputs.vocab, tokenizer)}


def _merge(
  name: str,
  param: jax.Array,
  other: np.ndarray,
  rows: dict[str, np.ndarray],
  report: Report,
) -> jax.Array:
  """The parameter with what fits of another's values in it."""
  kind = _row_kind(name, param)
  if kind not in rows:
    kind = None
  if param.shape[bool(kind) :] != other.shape[bool(kind) :]:
    report.skipped[name] = f'shape {other.shape}, not {param.shape}'
    return param
  if kind is None:
    report.loaded[name] = 'all'
    return with_values(param, np.ones((1,) * param.ndim, bool), other)
  source = np.full(len(param), -1)
  source[: len(rows[kind])] = rows[kind]
  found = source >= 0
  if not found.any():
    report.skipped[name] = f'none of its {kind} are ours'
    return param
  report.loaded[name] = f'{found.sum()} of {len(rows[kind])} {kind}'
  values = other[np.where(found, source, 0)]
  return with_values(param, found.reshape(-1, *(1,) * (param.ndim - 1)), values)


def _own_rows(state: TrainState) -> set[str]:
  """Label rows that are not trained: they follow from the run itself."""
  _, frozen = split_frozen(state.params)
  params = by_path(frozen).items()
  return {name for name, x in params if _row_kind(name, x) == 'labels'}


def _row_kind(name: str, param: jax.Array) -> str | None:
  spec: Any = param.sharding.spec
  if spec and spec[0] == LABEL:
    return 'labels'
  return _VOCABULARIES.get(name)


def with_values(
  param: jax.Array, found: np.ndarray, values: np.ndarray
) -> jax.Array:
  """A parameter with other values in some places, sharded as before.

  Args:
    param: float32, of any shape.
    found: bool, broadcast to that shape, where values count.
    values: of that shape, the same on every process.
  """
  # Each process fills the parts that it holds.
  mask, new = (
    jax.make_array_from_callback(param.shape, param.sharding, whole.__getitem__)
    for whole in (
      np.broadcast_to(found, param.shape),
      values.astype(param.dtype, copy=False),
    )
  )
  return jax.jit(jnp.where, out_shardings=param.sharding)(mask, new, param)
