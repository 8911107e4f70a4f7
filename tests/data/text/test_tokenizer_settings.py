"""Checks which errors become faults of a tokenizer, and which do not."""

import pytest

from xjax.core.errors import DataError, Preempted
from xjax.data.text.tokenizer_json import as_data_errors


class Panic(BaseException):
  """As the library's own: no Exception."""


@pytest.mark.parametrize(
  'kind', [DataError, KeyboardInterrupt, MemoryError, Preempted, SystemExit]
)
def test_what_comes_from_outside_stays_as_it_is(kind):
  with pytest.raises(kind, match='^stop$'), as_data_errors('here'):
    raise kind('stop')


@pytest.mark.parametrize('kind', [Exception, OverflowError, Panic])
def test_what_the_library_raises_is_a_fault_of_the_file(kind):
  with (
    pytest.raises(DataError, match='^here: .*broken'),
    as_data_errors('here'),
  ):
    raise kind('broken')
