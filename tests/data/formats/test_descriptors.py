"""Label descriptors: cycles, unknown parents, faulty lines."""

import hypothesis
from hypothesis import strategies as st
import pytest

from tests.fixtures.error_text import error_text
from xjax.data.config import OnError
from xjax.data.files.faults import Faults
from xjax.data.formats.descriptors import Descriptors, read_descriptors
from xjax.data.schema import Label


def read(tmp_path, text, on_error=OnError.RAISE):
  path = tmp_path / 'labels.jsonl'
  path.write_text(text)
  faults = Faults(on_error)
  return read_descriptors(path, faults), faults


def test_all_fields(tmp_path):
  described, faults = read(
    tmp_path,
    '{"id": "b", "name": "B", "alt": ["bee"], "parents": ["a"], '
    '"description": "letter", "more": 1}\n{"id": "a"}\n',
  )
  assert list(described.labels.values()) == [
    Label('b', 'B', ('bee',), ('a',), 'letter'),
    Label('a', 'a'),
  ]
  assert described.complete and not faults.count
  assert described.is_unknown('c') and not described.is_unknown('a')


def test_a_faulty_descriptor_leaves_its_label_known(tmp_path):
  described, faults = read(
    tmp_path, '{"id": "a", "name": 3}\n{"id": "b"}\n{"id": "b"}\n'
  )
  assert described.labels == {'a': Label('a', 'a'), 'b': Label('b', 'b')}
  assert described.complete
  shown = [s.split(':', 1)[1] for s in faults.shown]
  assert shown == ['1: name is a number, not text', "3: duplicate label 'b'"]


@pytest.mark.parametrize('line', ['{"id": ', '{"name": "x"}', '{"id": " "}'])
def test_where_an_id_is_lost_no_label_is_unknown(tmp_path, line):
  described, faults = read(tmp_path, f'{line}\n{{"id": "b"}}\n')
  assert faults.count == 1
  assert not described.is_unknown('c')


def test_unknown_parents_and_cycles(tmp_path):
  described, faults = read(
    tmp_path,
    '{"id": "a", "parents": ["x", "b"]}\n{"id": "b", "parents": ["c"]}\n'
    '{"id": "c", "parents": ["a", "d"]}\n{"id": "d", "parents": ["d"]}\n',
  )
  assert [s.split(':', 1)[1] for s in faults.shown] == [
    "1: label 'a' has the unknown parent 'x'",
    "3: label 'c' is its own ancestor, through its parent 'a'",
    "4: label 'd' is its own ancestor, through its parent 'd'",
  ]
  parents = {k: v.parents for k, v in described.labels.items()}
  assert parents == {'a': ('b',), 'b': ('c',), 'c': ('d',), 'd': ()}


def test_no_label_at_all(tmp_path):
  _, faults = read(tmp_path, '\n', OnError.SKIP)
  assert 'no label in it' in error_text(faults.settle)


@hypothesis.settings(derandomize=True, deadline=None, database=None)
@hypothesis.given(
  st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), max_size=15)
)
def test_cycles_are_found_where_there_are_some(edges):
  described = Descriptors(complete=True)
  for i in range(7):
    parents = tuple(dict.fromkeys(str(b) for a, b in edges if a == i))
    described.add(Label(str(i), parents=parents), i + 1)

  def ringed() -> bool:
    left = {k: set(v.parents) for k, v in described.labels.items()}
    while free := [k for k, above in left.items() if not above & set(left)]:
      for k in free:
        del left[k]
    return bool(left)

  before, faults = ringed(), Faults()
  described.check_parents('f', faults)
  assert bool(faults.count) == before
  assert not ringed()
