"""Which rows each process reads, on made-up devices."""

import types

import numpy as np
import pytest

from xjax.core.errors import ConfigError
from xjax.core.mesh_config import WHOLE, Share, own_share, shares


def devices(*rows):
  """Devices [data, label] by the process that each belongs to."""
  device = np.frompyfunc(lambda p: types.SimpleNamespace(process_index=p), 1, 1)
  return device(np.array(rows))


def pod(data, label):
  """16 x 16 chips in hosts of 2 x 2, laid out as (data, label)."""
  x, y = np.divmod(np.arange(256), 16)
  return devices(*(x // 2 * 8 + y // 2).reshape(data, label))


@pytest.mark.parametrize(
  ('rows', 'expected'),
  [
    # Rows of its own for each process.
    ([[0], [0], [1], [1]], [((0, 1), 4), ((2, 3), 4)]),
    ([[0, 0], [1, 1]], [((0,), 2), ((1,), 2)]),
    # The label axis goes on in another process.
    ([[0, 0, 1, 1]], [((0,), 1), ((0,), 1)]),
    ([[0, 1], [0, 1]], [((0, 1), 2), ((0, 1), 2)]),
    ([[0, 1], [1, 0]], [((0, 1), 2), ((0, 1), 2)]),
    # Both, in whatever order.
    ([[2, 3], [1, 0]], [((1,), 2), ((1,), 2), ((0,), 2), ((0,), 2)]),
    # Rows that lie apart.
    ([[0], [1], [0], [1]], [((0, 2), 4), ((1, 3), 4)]),
  ],
)
def test_processes_read_the_rows_of_their_devices(rows, expected):
  wanted = {i: Share(*share) for i, share in enumerate(expected)}
  assert shares(devices(*rows)) == wanted


@pytest.mark.parametrize(
  ('data', 'label', 'readers'), [(16, 16, 8), (256, 1, 64), (128, 2, 64)]
)
def test_a_pod(data, label, readers):
  found = shares(pod(data, label))
  assert len(found) == 64
  assert {share.readers for share in found.values()} == {readers}
  every = np.concatenate([share.rows(2 * data) for share in found.values()])
  # Each row is read, as often as any other.
  assert set(np.bincount(every, minlength=2 * data)) == {64 // readers}


@pytest.mark.parametrize(
  'rows',
  [
    # Two processes have a row in common, and one each of their own.
    [[0, 0, 0], [0, 1, 1], [1, 1, 2], [2, 2, 2]],
    # One has all the rows, the other some.
    [[0, 0], [0, 1]],
    # None in common, but more for one.
    [[0], [0], [1]],
  ],
)
def test_rows_that_are_not_shared_alike_are_refused(rows):
  data, label = np.shape(rows)
  said = f'mesh.data={data} x mesh.label={label}: all processes must'
  with pytest.raises(ConfigError, match=said):
    shares(devices(*rows))


def test_the_rows_of_a_share():
  assert WHOLE.rows(3).tolist() == [0, 1, 2]
  assert Share((1,), 2).rows(6).tolist() == [3, 4, 5]
  assert Share((0, 2), 3).rows(6).tolist() == [0, 1, 4, 5]
  assert (WHOLE.readers, Share((0, 2), 4).readers) == (1, 2)
  assert own_share() == WHOLE


@pytest.mark.parametrize('size', [0, 4])
def test_a_batch_must_divide(size):
  said = f'a batch of {size} documents .* into 3 .* multiple of 3'
  with pytest.raises(ConfigError, match=said):
    Share((0,), 3).rows(size)
