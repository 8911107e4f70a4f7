"""Tests that transfers are complete or not there, and never mix files."""

import dataclasses

import pytest

from tests.fixtures.kills import kill
from tests.fixtures.sparse_runs import contents as files_of
from tests.run.transfer.conftest import (
  LEAVES,
  ROWS,
  TAXONOMY,
  config_of,
  write_corpus,
)
from xjax.core.errors import ConfigError, DataError, Preempted
from xjax.data.formats.corpus_builder import SourceCorpus
from xjax.data.formats.data_config import DataConfig
from xjax.data.schema import Document
from xjax.models.contract import Config
from xjax.run.transfer.request import Target, TransferRequest
from xjax.run.transfer.transfer import transfer
from xjax.run.transfer.written import DocumentLines


def run(source, output, **options):
  options = {'branching': (3,), **options}
  request = TransferRequest(Target.HIERARCHICAL, str(output), **options)
  return transfer(config_of(source), request)


@pytest.fixture
def whole(source, tmp_path):
  """The files of a transfer that nobody killed."""
  run(source, tmp_path / 'whole')
  return files_of(tmp_path / 'whole')


def test_a_killed_transfer_leaves_no_folder_and_is_done_again(
  source, whole, tmp_path, monkeypatch
):
  output = tmp_path / 'tree'
  with monkeypatch.context() as patch:
    kill(patch, DocumentLines, '_count', 7)
    with pytest.raises(Preempted):
      run(source, output)
  assert not output.exists()
  (tmp_path / f'.tree.xjax-{2**22 + 1}-x.tmp').mkdir()  # of a killed process
  lines = run(source, output)
  assert files_of(output).keys() == whole.keys()
  assert run(source, output) == lines  # a finished one says the same
  assert not [*tmp_path.glob('.tree*')]


@pytest.fixture
def output(source, tmp_path):
  """The folder of a finished transfer."""
  run(source, tmp_path / 'tree')
  return tmp_path / 'tree'


def test_other_arguments_are_an_error(source, output):
  for options, says in (
    ({'branching': (2,)}, r'with branching=\[3\], but now.*\[2\]'),
    ({'seed': 1}, 'with seed=0, but now it is 1'),
  ):
    with pytest.raises(ConfigError, match=says):
      run(source, output, **options)
  request = TransferRequest(Target.FLAT, str(output), kept=LEAVES)
  with pytest.raises(ConfigError, match="with to='hierarchical', but now"):
    transfer(config_of(source), request)


def test_another_corpus_is_an_error(output, tmp_path):
  rows = {**ROWS, 'dev': ROWS['dev'][:1]}
  other = write_corpus(tmp_path / 'other', rows, TAXONOMY)
  with pytest.raises(DataError, match='has files of another corpus'):
    run(other, output)


def test_a_folder_of_other_files_stays_as_it_is(source, tmp_path):
  (tmp_path / 'file').write_text('')
  for output, says in (
    (tmp_path, 'files that are not of a transfer'),
    (source, 'is the folder of the corpus'),
    (tmp_path / 'file', 'is a file; give a folder'),
  ):
    with pytest.raises(ConfigError, match=says):
      run(source, output)


def test_a_damaged_record_is_an_error(source, output):
  (output / 'transfer.json').write_text('{"arguments": 3}')
  with pytest.raises(DataError, match='is damaged'):
    run(source, output)


@dataclasses.dataclass
class TextlessData(DataConfig):
  """A user's format that accepts documents without text."""

  def read(self, splits=(), usual=True):
    documents = [Document('1', {'text': 'a b'}, ('a',))]
    documents.append(Document('2', {'text': ' '}, ('b',)))
    return SourceCorpus.of('mine', [], {'train': documents})


def test_documents_need_a_text(tmp_path):
  request = TransferRequest(Target.FLAT, str(tmp_path / 'flat'))
  with pytest.raises(DataError, match="mine: train: document '2' has no text"):
    transfer(Config(data=TextlessData()), request)
