"""A new run that begins with the parameters of another.

Parameters are matched by path, label rows by label id, word vectors by word and
a pretrained encoder's by piece: the other run may have had other labels and
another vocabulary. What of a label is not trained is this run's own, and so is
the head, where the other run's is of another kind. Where it is not, what this
run makes of descriptors is what it was there: the head is trained on that.
"""

from collections.abc import Iterable, Mapping, Set
import dataclasses
import pathlib
from typing import Any

from absl import logging
import jax
import numpy as np

from xjax.core.distributed import is_host0
from xjax.core.errors import ConfigError
from xjax.data.schema import LabelSpace
from xjax.train.checkpoint import (
  fault_of,
  intact_steps,
  read_meta,
  read_some,
  saved_params,
)
from xjax.train.initial.warm_rows import (
  EXPONENT,
  KERNEL,
  has_label_rows,
  storage_of,
  take_rows,
)
from xjax.train.initial.words import piece_rows, word_rows
from xjax.train.inputs import Inputs
from xjax.train.parameters import (
  DESCRIPTORS,
  PIECE_VECTORS,
  WORD_VECTORS,
  by_path,
  from_paths,
  replace_values,
)
from xjax.train.state import TrainState, split_frozen
from xjax.train.workdir import Workdir

_HEAD = 'head/'
_VOCABULARIES = {WORD_VECTORS: 'words', PIECE_VECTORS: 'pieces'}


@dataclasses.dataclass
class WarmStartReport:
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
  lost, a warning says that the newest is used.
  """
  steps = intact_steps(workdir.checkpoints, newest=1)
  if not steps:
    return None
  (newest,) = steps
  best = read_meta(workdir.checkpoints, newest)['best_step']
  return chosen_step(workdir, newest, best)


def chosen_step(workdir: Workdir, newest: int, best: int | None) -> int:
  """The best step, or the newest where there is none or it is lost."""
  if best is None or (workdir.checkpoints / str(best)).is_dir():
    return newest if best is None else best
  logging.warning(
    '%s: the best checkpoint, of step %d, is lost; that of step %d is used',
    workdir.path,
    best,
    newest,
  )
  return newest


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
  checkpoint = workdir.checkpoints, step
  theirs, ours = saved_params(*checkpoint), by_path(state.params)
  rows = {'labels': _label_rows(space, workdir.label_space())}
  rows |= _vocabulary_rows(ours, theirs, inputs, workdir)
  same_head = _head_paths(ours) == _head_paths(theirs)
  report = _report(ours, theirs, rows, _own_rows(state), same_head)
  if not report.loaded:
    raise ConfigError(f'train.init_from={source}: none of it fits:\n{report}')
  if is_host0():
    logging.info('warm start from %s, step %d:\n%s', workdir.path, step, report)
  merged = _merged(ours, theirs, rows, report.loaded.keys(), checkpoint)
  state = dataclasses.replace(state, params=from_paths(state.params, merged))
  describes = same_head and _width(ours) == _width(theirs) != ()
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
  step = int(number) if number else best_step(workdir)
  if step is None:
    raise ConfigError(f'train.init_from={source}: no checkpoints there')
  if fault_of(workdir.checkpoints, step):
    steps = intact_steps(workdir.checkpoints)
    raise ConfigError(
      f'train.init_from={source}: no checkpoint of step {step}; there are '
      f'{", ".join(map(str, steps)) or "none"}'
    )
  return workdir, step


def _head_paths(params: Iterable[str]) -> set[str]:
  """What a head is made of, which tells its kind, however it is stored."""
  return {name for name in params if name.startswith(_HEAD)} - {EXPONENT}


def _label_rows(ours: LabelSpace, theirs: LabelSpace) -> np.ndarray:
  """int64: row there of each trained label here; -1: it has none."""
  ids = [space.ids[: space.n_trained] for space in (ours, theirs)]
  same = ids[0] == ids[1]
  return np.arange(len(ids[0])) if same else ids[1].row_of.find(ids[0])


def _width(params: Mapping[str, Any]) -> tuple[int, ...]:
  """(E,) of descriptors; (): there are none."""
  return params[DESCRIPTORS].shape[1:] if DESCRIPTORS in params else ()


def _vocabulary_rows(
  ours: Mapping[str, jax.Array],
  theirs: Mapping[str, jax.ShapeDtypeStruct],
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


def _report(
  ours: Mapping[str, jax.Array],
  theirs: Mapping[str, jax.ShapeDtypeStruct],
  rows: Mapping[str, np.ndarray],
  own: Set[str],
  same_head: bool,
) -> WarmStartReport:
  """What will become of each parameter, as shapes tell.

  Of the exponents of a kernel nothing is said: they go with it.
  """
  report = WarmStartReport()
  for name, param in ours.items():
    if name == EXPONENT:
      continue
    if name not in theirs:
      report.fresh.append(name)
    elif name in own:
      report.skipped[name] = 'not trained: stays as this run has it'
    elif name.startswith(_HEAD) and not same_head:
      report.skipped[name] = 'means something else in a head of another kind'
    else:
      _fit(name, param, theirs[name], rows.get(_row_kind(name, param)), report)
  there = storage_of(theirs)
  if KERNEL in report.loaded and there is not storage_of(ours):
    report.loaded[KERNEL] += f', stored as {there.value} there'
  report.unused = sorted(theirs.keys() - ours.keys() - {EXPONENT})
  return report


def _fit(
  name: str,
  param: jax.Array,
  other: jax.ShapeDtypeStruct,
  source: np.ndarray | None,
  report: WarmStartReport,
) -> None:
  """Reports how much of another's parameter fits; source: None: by no rows."""
  by_row = source is not None
  if param.shape[by_row:] != other.shape[by_row:]:
    report.skipped[name] = f'shape {other.shape}, not {param.shape}'
  elif not by_row:
    report.loaded[name] = 'all'
  elif (source < 0).all():
    kind = _row_kind(name, param)
    report.skipped[name] = f'none of its {kind} are ours'
  else:
    kind = _row_kind(name, param)
    report.loaded[name] = f'{(source >= 0).sum()} of {len(source)} {kind}'


def _merged(
  ours: Mapping[str, jax.Array],
  theirs: Mapping[str, jax.ShapeDtypeStruct],
  rows: Mapping[str, np.ndarray],
  loaded: Set[str],
  checkpoint: tuple[pathlib.Path, int],
) -> dict[str, jax.Array]:
  """This run's parameters, with the other's in those that are loaded."""
  merged = dict(ours)
  labels = {name: ours[name] for name in loaded if has_label_rows(ours[name])}
  if KERNEL in labels and EXPONENT in ours:
    labels[EXPONENT] = ours[EXPONENT]
  if labels:
    merged |= take_rows(labels, theirs, rows['labels'], checkpoint)
  rest = loaded - labels.keys()
  found = read_some(*checkpoint, {name: theirs[name] for name in rest})
  for name, other in found.items():
    source = rows.get(_row_kind(name, ours[name]))
    merged[name] = _merge(ours[name], other, source)
  return merged


def _merge(
  param: jax.Array, other: np.ndarray, source: np.ndarray | None
) -> jax.Array:
  """The parameter with another's values, or with its rows where it has any."""
  if source is None:
    return replace_values(param, np.ones((1,) * param.ndim, bool), other)
  beyond = len(param) - len(source)
  source = np.pad(source, (0, beyond), constant_values=-1)
  found = source >= 0
  values = other[np.where(found, source, 0)]
  return replace_values(
    param, found.reshape(-1, *(1,) * (param.ndim - 1)), values
  )


def _own_rows(state: TrainState) -> set[str]:
  """Label rows that are not trained: they follow from the run itself."""
  _, frozen = split_frozen(state.params)
  params = by_path(frozen).items()
  return {name for name, x in params if _row_kind(name, x) == 'labels'}


def _row_kind(name: str, param: jax.Array) -> str:
  """Of what a parameter has rows, that runs may have others of; '': nothing."""
  return 'labels' if has_label_rows(param) else _VOCABULARIES.get(name, '')
