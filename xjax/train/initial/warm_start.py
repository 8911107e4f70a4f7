"""Starts a run from the parameters of another run.

The other run may have other labels and another vocabulary:

- Parameters are matched by path, and label rows by label id.
- Word vectors are matched by word. Of a pretrained encoder, the input vectors
  are matched by piece, and the layers by their number. The vectors of labels
  and concepts that views read are matched by id.
- This run keeps its own parameters of heads and views that are computed, not
  trained, such as a tree of labels.
- If the other run has another kind of head, a head with other clusters of
  labels, or only one of the heads has weights of one byte, this run keeps its
  own head. Heads with and without a graph of labels are of the same kind.
- If the head is loaded, this run embeds descriptors in the same way as the
  other run, because the head was trained on the other run's descriptors.
"""

from collections.abc import Mapping, Set
import dataclasses
from typing import Any

from absl import logging
import jax
import jax.numpy as jnp
import numpy as np

from xjax.core.distributed import is_host0
from xjax.core.errors import ConfigError
from xjax.data.label_trees.label_tree import by_frequency
from xjax.data.label_trees.levels import LabelLevels
from xjax.data.schema import LabelSpace
from xjax.data.text.subwords import Subwords
from xjax.data.text.words import Vocabulary
from xjax.networks.heads.chunks import on_labels
from xjax.train.checkpoint import read_some, saved_params
from xjax.train.initial.descriptors import encoded_labels
from xjax.train.initial.start_words import piece_rows, word_rows
from xjax.train.parameters import (
  DESCRIPTORS,
  GRAPH,
  PIECE_VECTORS,
  PLACES,
  STACKS,
  VIEW_EDGES,
  VIEW_VECTORS,
  WORD_VECTORS,
  by_path,
  replace_values,
)
from xjax.train.saved_steps import best_step, check_checkpoint
from xjax.train.state import TrainState, split_frozen
from xjax.train.workdir import Workdir, split_step

_HEAD, _KERNEL, _EXPONENT = 'head/', 'head/kernel', 'head/exponent'
_COMPUTED = _HEAD, 'views/'  # frozen parameters that each run computes
_VOCABULARIES = {
  WORD_VECTORS: 'words',
  PIECE_VECTORS: 'pieces',
  VIEW_VECTORS: 'nodes',
  VIEW_EDGES: 'nodes',
}


@dataclasses.dataclass(frozen=True, eq=False)
class LoadedParameters:
  """Holds what a run takes from another run; by default nothing."""

  # The other run if this run must embed descriptors in the same way; None if
  # the head has no descriptors, or is not loaded.
  descriptor_run: Workdir | None = None
  paths: Set[str] = frozenset()  # of parameters that are loaded, even in part
  # bool [trained labels], True for labels whose rows of the head's kernel are
  # loaded; None if there are no such rows.
  label_L: np.ndarray | None = None


def warm_start(
  state: TrainState,
  source: str,
  space: LabelSpace,
  vocab: Vocabulary | Subwords | None,
  levels: LabelLevels | None = None,
) -> tuple[TrainState, LoadedParameters]:
  """Puts another run's parameters into the initial state; logs a report.

  `source` is WORKDIR, for its best_step(), or WORKDIR@step. Do not use the
  parameters of `state` afterwards. A ConfigError says that there is no
  checkpoint, or that no parameter fits this run; a DataError, that a file of
  the other workdir is damaged.
  """
  workdir, step = find_start(source)
  checkpoint = workdir.checkpoints, step
  theirs, ours = saved_params(*checkpoint), by_path(state.params)
  spaces = space, workdir.label_space()
  rows = {'labels': _label_rows(*spaces)}
  rows |= _vocabulary_rows(ours, theirs, vocab, workdir)
  rows |= _layer_rows(ours, theirs)
  if VIEW_VECTORS in ours and VIEW_VECTORS in theirs:
    ids = [encoded_labels(one).ids for one in spaces]
    rows['nodes'] = ids[1].row_of.find(ids[0])
  head_fault = _head_fault(ours, theirs, spaces)
  if levels is not None and not head_fault:
    head_fault = _levels_fault(levels, spaces, workdir)
  fits = _fits(ours, theirs, rows, _untrained(state), head_fault)
  loaded = {name for name, (use, _) in fits.items() if use == 'loaded'}
  report = '\n'.join(
    f'  {use:7} {name}' + f': {why}' * bool(why)
    for wanted in ('loaded', 'fresh', 'skipped', 'unused')
    for name, (use, why) in fits.items()
    if use == wanted
  )
  if not loaded:
    raise ConfigError(
      f'config.train.init_from={source}: no parameter of the checkpoint fits '
      'this run:\n'
      f'{report}'
    )
  if is_host0():
    logging.info('warm start from %s, step %d:\n%s', workdir.path, step, report)
  # Sorted, since hosts must run programs over shared arrays in one order.
  sources = {
    name: rows.get(_row_kind(name, ours[name])) for name in sorted(loaded)
  }
  wanted = {
    name: _where_read(theirs[name], ours[name], source)
    for name, source in sources.items()
  }
  saved = read_some(*checkpoint, wanted)
  state = state.with_params(
    {
      name: _replaced(ours[name], saved[name], source_rows)
      for name, source_rows in sources.items()
    }
  )
  describes = not head_fault and _width(ours) == _width(theirs) != ()
  taken = LoadedParameters(
    descriptor_run=workdir if describes else None,
    paths=frozenset(loaded),
    label_L=rows['labels'] >= 0 if _KERNEL in loaded else None,
  )
  return state, taken


def find_start(source: str) -> tuple[Workdir, int]:
  """Returns the run and the step of train.init_from=WORKDIR[@step]."""
  path, step = split_step(source)
  workdir = Workdir.at(path)
  choice = f'config.train.init_from={source}@N'
  if step is not None:
    check_checkpoint(workdir, step, choice)
    return workdir, step
  if (step := best_step(workdir, choice)) is None:
    raise ConfigError(
      f'config.train.init_from={source}: {workdir.path} has no checkpoint'
    )
  return workdir, step


def _head_paths(params: Mapping[str, Any]) -> set[str]:
  heads = (name for name in params if name.startswith(_HEAD))
  return {name for name in heads if not name.startswith(GRAPH)}


def _head_fault(
  ours: Mapping[str, jax.Array],
  theirs: Mapping[str, jax.ShapeDtypeStruct],
  spaces: tuple[LabelSpace, LabelSpace],
) -> str:
  if _head_paths(ours) != _head_paths(theirs):
    return 'has another meaning in a head of another kind or storage'
  if PLACES not in ours:
    return ''
  # These heads have tables of labels in the order by frequency. A table of the
  # same size may have other labels.
  paths = _head_paths(ours)
  same_sizes = all(ours[x].shape == theirs[x].shape for x in paths)
  if same_sizes and _have_same_labels(*spaces):
    orders = [
      by_frequency(space.train_counts[: space.n_trained]) for space in spaces
    ]
    if np.array_equal(*orders):
      return ''
  return 'belongs to labels in another order by frequency'


def _levels_fault(
  levels: LabelLevels, spaces: tuple[LabelSpace, LabelSpace], other: Workdir
) -> str:
  """Returns why a head with levels does not fit this run's levels, or ''."""
  theirs = LabelLevels.load(other.levels)
  other.check(other.levels)
  same = all(map(np.array_equal, levels.parents, theirs.parents))
  if same and _have_same_labels(*spaces):
    return ''
  return 'belongs to other clusters of labels'


def _have_same_labels(ours: LabelSpace, theirs: LabelSpace) -> bool:
  return ours.ids[: ours.n_trained] == theirs.ids[: theirs.n_trained]


def _label_rows(ours: LabelSpace, theirs: LabelSpace) -> np.ndarray:
  """Returns the other run's row of each trained label, or -1."""
  if _have_same_labels(ours, theirs):
    return np.arange(ours.n_trained)
  ids = [space.ids[: space.n_trained] for space in (ours, theirs)]
  return ids[1].row_of.find(ids[0])


def _width(params: Mapping[str, Any]) -> tuple[int, ...]:
  """Returns (E,), the width of descriptors, or () if there are none."""
  return params[DESCRIPTORS].shape[1:] if DESCRIPTORS in params else ()


def _vocabulary_rows(
  ours: Mapping[str, jax.Array],
  theirs: Mapping[str, jax.ShapeDtypeStruct],
  vocab: Vocabulary | Subwords | None,
  workdir: Workdir,
) -> dict[str, np.ndarray]:
  """Returns {'words' or 'pieces': the other run's row of each of ours}."""
  # Empty without a table of vectors, or if pieces have equal tables.
  if WORD_VECTORS in ours and WORD_VECTORS in theirs:
    return {'words': word_rows(vocab, workdir.vocabulary())}
  if PIECE_VECTORS not in ours or PIECE_VECTORS not in theirs:
    return {}
  tokenizer = workdir.subwords()
  same_size = ours[PIECE_VECTORS].shape == theirs[PIECE_VECTORS].shape
  if same_size and tokenizer.digest == vocab.digest:
    return {}
  return {'pieces': piece_rows(vocab, tokenizer)}


def _layer_rows(
  ours: Mapping[str, jax.Array], theirs: Mapping[str, jax.ShapeDtypeStruct]
) -> dict[str, np.ndarray]:
  """Returns {'layers': the other run's layer of each of ours}, if any."""
  stacks = (x for x in ours.keys() & theirs.keys() if x.startswith(STACKS))
  if (name := next(stacks, None)) is None:
    return {}
  layers = np.arange(len(ours[name]))
  return {'layers': np.where(layers < theirs[name].shape[0], layers, -1)}


def _fits(
  ours: Mapping[str, jax.Array],
  theirs: Mapping[str, jax.ShapeDtypeStruct],
  rows: Mapping[str, np.ndarray],
  untrained: Set[str],
  head_fault: str,
) -> dict[str, tuple[str, str]]:
  """Says whether parameters are loaded, skipped, fresh or unused, and why."""
  fits = dict.fromkeys(ours.keys() - theirs.keys(), ('fresh', ''))
  fits |= dict.fromkeys(theirs.keys() - ours.keys(), ('unused', ''))
  for name in ours.keys() & theirs.keys():
    sized = _KERNEL if name == _EXPONENT else name  # it scales these weights
    shape, other = ours[sized].shape, theirs[sized].shape
    kind = _row_kind(name, ours[name])
    source = rows.get(kind)  # the other run's row of each row, -1: none
    # True, as 1, cuts off the first axis, whose length may differ.
    by_row = source is not None
    if name in untrained:
      fits[name] = 'skipped', 'not trained, so it keeps its own values'
    elif name.startswith(_HEAD) and head_fault:
      fits[name] = 'skipped', head_fault
    elif shape[by_row:] != other[by_row:]:
      fits[name] = 'skipped', f'shape {other}, not {shape}'
    elif not by_row:
      fits[name] = 'loaded', 'all'
    elif (source < 0).all():
      fits[name] = 'skipped', f'none of its {kind} are in this run'
    else:
      how = f'{(source >= 0).sum()} of {len(source)} {kind}'
      fits[name] = 'loaded', how
  return dict(sorted(fits.items()))


def _where_read(
  other: jax.ShapeDtypeStruct, param: jax.Array, source: np.ndarray | None
) -> jax.ShapeDtypeStruct:
  """Returns `other` with the sharding with which it is read, if any.

  The devices that hold rows read those that keep their places. Any other order
  needs all rows in the memory of every host.
  """
  if source is None or other.shape != param.shape:
    return other
  kept = int((source >= 0).sum())
  if not np.array_equal(source[:kept], np.arange(kept)):
    return other
  return jax.ShapeDtypeStruct(other.shape, other.dtype, sharding=param.sharding)


def _replaced(
  param: jax.Array, other: np.ndarray | jax.Array, source: np.ndarray | None
) -> jax.Array:
  """Puts rows of another table into a parameter, which is donated.

  `source` has the other row of each row, -1 for none; None takes all values.
  """
  if source is None:
    return replace_values(param, other)
  beyond = len(param) - len(source)
  source = np.pad(source, (0, beyond), constant_values=-1)

  # Each process makes only the rows on its own devices.
  def part(index: tuple[slice, ...]) -> np.ndarray:
    rows = other[np.maximum(source[index[0]], 0)]
    return rows[:, *index[1:]].astype(param.dtype)

  if isinstance(other, jax.Array):
    taken = other.astype(param.dtype)
  else:
    taken = jax.make_array_from_callback(param.shape, param.sharding, part)
  # Label rows may be most of the memory, so the result replaces param.
  replace = jax.jit(jnp.where, donate_argnums=2, out_shardings=param.sharding)
  mask = (source >= 0).reshape(-1, *(1,) * (param.ndim - 1))
  return replace(mask, taken, param)


def _untrained(state: TrainState) -> set[str]:
  """Returns the parameters that each run computes instead of training them."""
  _, frozen = split_frozen(state.params)
  return {name for name in by_path(frozen) if name.startswith(_COMPUTED)}


def _row_kind(name: str, param: jax.Array) -> str:
  """Returns the kind of rows that are matched between runs, '' if none."""
  is_row = on_labels(param.sharding.spec)
  if name.startswith(STACKS):
    return 'layers'
  return 'labels' if is_row else _VOCABULARIES.get(name, '')
