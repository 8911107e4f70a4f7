"""Flags of config fields: texts become values."""

import pytest

from xjax.commands.flags.config import TupleParser


@pytest.mark.parametrize(
  ('element', 'text', 'items'),
  [
    (str, 'encoder/layers/[0-3]', ('encoder/layers/[0-3]',)),
    (str, "('encoder/layers/[0-3]',)", ('encoder/layers/[0-3]',)),
    (str, "['encoder/layers/[0-3]']", ('encoder/layers/[0-3]',)),
    (str, '[ab]/*=0.1,x/[cd]', ('[ab]/*=0.1', 'x/[cd]')),
    (str, '(a, "b")', ('a', 'b')),
    (str, ' [a,b] ', ('a', 'b')),
    (str, 'a', ('a',)),
    (str, '()', ()),
    (str, '', ()),
    (int, '(1, 2,)', (1, 2)),
    (float, '[.5]', (0.5,)),
  ],
)
def test_several_values_keep_the_brackets_of_their_globs(element, text, items):
  assert TupleParser(element).parse(text) == items
