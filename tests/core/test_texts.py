"""Strings in one array of bytes."""

import hypothesis
from hypothesis import strategies as st
import numpy as np
import pytest

from xjax.core import texts as packed
from xjax.core.texts import TextLists, Texts, known_name, plain_name

# Few letters, so that strings repeat; of one, two and four bytes, and NUL.
TEXT = st.text('ab\0é\U00012000', max_size=4)
SETTINGS = hypothesis.settings(
  derandomize=True,
  deadline=None,
  database=None,
  suppress_health_check=[hypothesis.HealthCheck.function_scoped_fixture],
)


@pytest.fixture(autouse=True)
def few_at_a_time(monkeypatch):
  monkeypatch.setattr(packed, '_ROWS', 2)


@SETTINGS
@hypothesis.given(
  st.lists(TEXT), st.slices(6), st.lists(st.integers(0, 5)), st.lists(TEXT)
)
def test_they_are_as_a_tuple(plain, part, rows, others):
  ours = Texts.of(plain)
  assert len(ours) == len(plain) and tuple(ours) == tuple(plain)
  assert ours == tuple(plain) and ours[part] == tuple(plain[part])
  assert [ours[i] for i in range(len(plain))] == plain
  rows = [row for row in rows if row < len(plain)]
  assert ours[np.array(rows, int)] == [plain[row] for row in rows]
  mask = np.array([len(text) % 2 == 1 for text in plain], bool)
  assert ours[mask] == [text for text in plain if len(text) % 2]
  assert ours[::-1][1:] == plain[::-1][1:]
  both = Texts.concatenate([ours[1:], Texts.of(others)])
  assert both == plain[1:] + others
  first = {text: i for i, text in reversed([*enumerate(plain)])}
  assert ours.row_of.find(others).tolist() == [
    first.get(text, -1) for text in others
  ]
  assert all((text in ours) == (text in plain) for text in others)
  repeated = [i for i, text in enumerate(plain) if text in plain[:i]]
  assert ours.row_of.repeated() == repeated


def test_others_are_not_equal():
  ours = Texts.of(['a', 'b'])
  assert ours != ('a', 'c') and ours != ('a',) and ours != Texts.of(['ab', ''])
  assert ours != 'ab' and ours != 3 and ours != {'a': 0, 'b': 1}
  with pytest.raises(KeyError):
    ours.row_of['c']
  with pytest.raises(IndexError):
    ours[2]
  assert ours[-1] == 'b' and None not in ours


def test_strings_of_the_same_hash_are_told_apart(monkeypatch):
  monkeypatch.setattr(packed.zlib, 'crc32', len)
  ours = Texts.of(['aa', 'b', 'cc', 'b'])
  assert ours.row_of['cc'] == 2 and 'dd' not in ours
  assert ours.row_of.repeated() == [3]


@SETTINGS
@hypothesis.given(st.lists(st.lists(TEXT).map(tuple)))
def test_lists_of_strings(plain):
  assert list(TextLists.of(plain)) == plain


@pytest.mark.parametrize(
  ('given', 'name'),
  [
    ('fish', 'fish'),
    (' two  words\t', 'two words'),
    ('sante\u0301', 'santé'),
    ('e\u200b\u0301\u00adtat\xa0\u3000x\ufeff', 'état x'),
    ('\u200fשלום\u200e', 'שלום'),
    ('می\u200cروم', 'می\u200cروم'),
    ('\u1112\u1161\u11ab', '한'),
    ('\u200b \u2060', ''),
  ],
)
def test_names_have_one_form(given, name):
  assert plain_name(given) == name == plain_name(name)
  assert known_name(given, [given]) == given
  assert known_name(given, [name]) == name
