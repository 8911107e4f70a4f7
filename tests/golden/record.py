"""What is kept of a run, read from its workdir, and the file that holds it."""

from collections.abc import Iterator
import dataclasses
import hashlib
import json
import pathlib
from typing import Any, Self

import numpy as np

DOCUMENTS, PLACES = 32, 10  # that are kept of each slice's lists
_LISTS = '/ids', '/scores'
_TRAINING = 'loss', 'learning_rate', 'grad_norm'


@dataclasses.dataclass(frozen=True, eq=False)
class Frozen:
  """The results of a run, or the reason why it failed."""

  failure: str = ''  # the error; '' of a finished run
  neural: bool = False  # whether a part of the run was trained in steps
  # The arrays of predictions.npz but the lists. Short values are kept as they
  # are, and all others together as a digest.
  facts: dict[str, str] = dataclasses.field(default_factory=dict)
  # SHA-256 of whole arrays, such as 'all/ids'.
  digests: dict[str, str] = dataclasses.field(default_factory=dict)
  # Slice -> (ids, scores), both [documents, places].
  lists: dict[str, tuple[np.ndarray, np.ndarray]] = dataclasses.field(
    default_factory=dict
  )
  # metrics.json, and the loss, learning rate and gradient norm of each step.
  metrics: dict[str, Any] = dataclasses.field(default_factory=dict)

  @classmethod
  def of_workdir(cls, workdir: pathlib.Path) -> Self:
    """Returns the first documents and places of a finished run's lists."""
    judged = workdir / 'eval' / 'dev'
    with np.load(judged / 'predictions.npz') as file:
      arrays = {key: file[key] for key in file.files}
    metrics = json.loads((judged / 'metrics.json').read_text())
    if training := _training_of(workdir):
      metrics['training'] = training
    slices = [key[:-4] for key in arrays if key.endswith('/ids')]
    return cls(
      neural=any(path.is_dir() for path in workdir.rglob('checkpoints')),
      facts=_facts_of(arrays),
      digests={k: digest(arrays[k]) for k in arrays if k.endswith(_LISTS)},
      lists={
        name: tuple(arrays[name + x][:DOCUMENTS, :PLACES] for x in _LISTS)
        for name in slices
      },
      metrics=metrics,
    )

  def save(self, path: pathlib.Path) -> None:
    """Writes one file; equal contents give equal bytes."""
    record = dataclasses.asdict(dataclasses.replace(self, lists={}))
    record['lists'] = [*self.lists]
    text = json.dumps(record, separators=(',', ':')).encode()
    ids, scores = zip(*self.lists.values()) if self.lists else ((), ())
    unfinished = path.with_suffix('.tmp')
    with unfinished.open('wb') as file:
      np.savez_compressed(
        file,
        record=np.frombuffer(text, np.uint8),
        ids=np.array(ids, np.int32),
        scores=np.array(scores, np.float32),
      )
    unfinished.rename(path)

  @classmethod
  def load(cls, path: pathlib.Path) -> Self:
    """Reads what `save` wrote."""
    with np.load(path) as file:
      record = json.loads(file['record'].tobytes())
      pairs = zip(file['ids'], file['scores'])
      record['lists'] = dict(zip(record['lists'], pairs))
    return cls(**{x.name: record[x.name] for x in dataclasses.fields(cls)})


def digest(array: np.ndarray) -> str:
  """Returns the SHA-256 of the type, shape and values of an array."""
  kind = f'{array.dtype.str} {array.shape} '.encode()
  return hashlib.sha256(kind + array.tobytes()).hexdigest()


def _facts_of(arrays: dict[str, np.ndarray]) -> dict[str, str]:
  """Returns what is no list; floats are among the metrics too."""
  others = {
    key: array
    for key, array in sorted(arrays.items())
    if not key.endswith(_LISTS) and array.dtype.kind != 'f'
  }
  facts = {k: str(x.item()) for k, x in others.items() if x.size == 1}
  long = ''.join(f'{k} {digest(others[k])} ' for k in others if k not in facts)
  return facts | {'others': hashlib.sha256(long.encode()).hexdigest()}


def _training_of(workdir: pathlib.Path) -> dict[str, Any]:
  """Returns the records of steps: folder -> one list for each step."""
  training = {}
  for path in sorted(workdir.rglob('metrics.jsonl')):
    rows = map(json.loads, path.read_text().splitlines())
    steps = [
      [row.get(name) for name in _TRAINING]
      for row in rows
      if row['kind'] == 'train'
    ]
    training[path.parent.relative_to(workdir).as_posix()] = steps
  return training


def leaves(tree: Any, path: str = '') -> Iterator[tuple[str, Any]]:
  """Yields (path, value) of all values in nested dicts and lists."""
  match tree:
    case dict():
      for name, inner in tree.items():
        yield from leaves(inner, f'{path}/{name}')
    case list():
      for number, inner in enumerate(tree):
        yield from leaves(inner, f'{path}/{number}')
    case _:
      yield path[1:], tree
