"""Whatever the folders of other projects hold: a corpus or a DataError."""

import pathlib
import tempfile

import hypothesis
from hypothesis import strategies as st
import pytest

from tests.faults import damage
from tests.faults.damage import pieces
from tests.fixtures.fuzzing import fuzzed
from xjax.core.errors import DataError
from xjax.data.config import OnError
from xjax.data.formats.data_config import DataConfig
from xjax.data.formats.htc import HtcConfig, HtcData, HtcLabels
from xjax.data.formats.own.own import OwnData
from xjax.data.formats.xc_features import XcFeaturesData
from xjax.data.formats.xc_text import XcRepoData
from xjax.data.hierarchy import Hierarchy
from xjax.data.load import load_corpus

TRN = (
  b'{"uid": "a", "title": "t", "content": "c", "target_ind": [0, 2]}\n'
  b'{"uid": 7, "title": "u", "target_ind": [1], "target_rel": [1.0]}\n'
)
ROWS = b'3 4 3\n0,2 0:1 3:0.5\n 1:2\n1 2:1.5\n'
NAMES = b'one\ntwo\nthree\n'
TAXONOMY = b'Root\ta\tb\na\tc\td\nb\td\n'
DOCUMENTS = (
  b'{"doc_token": ["x", "y"], "doc_label": ["a", "c"]}\n'
  b'{"doc_token": "x", "doc_label": ["d"], "id": "own"}\n'
)
TABLE = b'title,body,tags\n' + b''.join(
  b'"t, %d","b\n\xe9",a;b%d\n' % (i, i % 3) for i in range(12)
)
PIECES = pieces(
  b'a|b|c|d|Root|\t|\n|"|,|[|]|{|}|null|-1|3|1e999|1.5|[2]|"a"|"doc_label"|'
  b'"target_ind"|"uid"|\0|\xff\xfe|\xe9|\x1f\x8b| ',
  2,
)


def damaged(sound: bytes) -> st.SearchStrategy[bytes]:
  return damage.damaged(sound, PIECES)


@pytest.fixture(scope='module')
def folder():
  with tempfile.TemporaryDirectory() as name:
    yield pathlib.Path(name)


def check(data: DataConfig) -> None:
  try:
    corpus = load_corpus(data, 0)
  except DataError as error:
    assert str(error).startswith(data.dir)
    return
  space, split = corpus.label_space, corpus.split('train')
  assert [document.id for document in split.documents] == list(split.ids) != []
  assert split.gold.values.max(initial=0) < len(space)
  assert len(space.train_counts) == len(space) > 0


@fuzzed(400)
@hypothesis.given(damaged(TRN), damaged(NAMES), st.sampled_from(OnError))
def test_raw_text(folder, trn, names, on_error):
  place = folder / 'xc'
  place.mkdir(exist_ok=True)
  (place / 'trn.json').write_bytes(trn)
  (place / 'Y.txt').write_bytes(names)
  check(XcRepoData(dir=str(place), on_error=on_error))


@fuzzed(400)
@hypothesis.given(damaged(TABLE), st.sampled_from(OnError))
def test_tables(folder, table, on_error):
  path = folder / 'table.csv'
  path.write_bytes(table)
  check(OwnData(dir=str(path), on_error=on_error))


@fuzzed(400)
@hypothesis.given(damaged(ROWS), damaged(NAMES))
def test_features(folder, rows, names):
  place = folder / 'features'
  place.mkdir(exist_ok=True)
  (place / 'train.txt').write_bytes(rows)
  (place / 'Y.txt').write_bytes(names)
  check(XcFeaturesData(dir=str(place)))


@fuzzed(400)
@hypothesis.given(
  damaged(DOCUMENTS),
  damaged(TAXONOMY),
  st.sampled_from(HtcLabels),
  st.sampled_from(OnError),
)
def test_hierarchies(folder, documents, taxonomy, labels, on_error):
  place = folder / 'htc'
  place.mkdir(exist_ok=True)
  (place / 'train.json').write_bytes(documents)
  (place / 'taxonomy').write_bytes(taxonomy)
  data = HtcData(
    dir=str(place), on_error=on_error, htc=HtcConfig(labels=labels)
  )
  check(data)
  if on_error is OnError.RAISE and taxonomy == TAXONOMY:
    try:
      space = load_corpus(data, 0).label_space
    except DataError:
      return
    if labels is HtcLabels.ALL:
      assert (Hierarchy.of_space(space).levels > 0).all()
