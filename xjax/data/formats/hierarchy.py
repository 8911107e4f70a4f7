"""How deep a label lies in a hierarchy."""

from collections.abc import Sequence

import numpy as np

from xjax.data.schema import Label

NOWHERE = -1  # the level of a label that hangs on none that is known


def label_levels(
  labels: Sequence[Label], others: Sequence[Label] = ()
) -> np.ndarray:
  """The level of each label: one more than that of its highest parent.

  A label without parents is of level 1. Where a label has several parents the
  shortest way counts, and so do ways through labels that only others has. A
  label none of whose ways up ends at a label of level 1 (its parents are not
  known, or it is its own ancestor) is NOWHERE: no level is made up for it.

  Args:
    labels: L labels.
    others: further descriptors, such as a whole taxonomy's, through which the
      parents of labels may be found.

  Returns:
    int32 [L].
  """
  described = {label.id: label for label in (*others, *labels)}
  children: dict[str, list[str]] = {}
  for label in described.values():
    for parent in label.parents:
      children.setdefault(parent, []).append(label.id)
  front = [label.id for label in described.values() if not label.parents]
  levels = dict.fromkeys(front, 1)
  # Breadth first: who is reached first is reached by the shortest way.
  while front:
    level = levels[front[0]] + 1
    below = [c for id_ in front for c in children.get(id_, ())]
    front = [c for c in dict.fromkeys(below) if c not in levels]
    levels.update(dict.fromkeys(front, level))
  found = [levels.get(label.id, NOWHERE) for label in labels]
  return np.array(found, np.int32)
