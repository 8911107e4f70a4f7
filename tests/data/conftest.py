"""A tokenizer of RoBERTa's kind."""

import json
import pathlib

import pytest

from xjax.data.text.subwords import Subwords

# Letters and a space, by bytes, and what is merged of them.
BYTES = '<s> <pad> </s> <unk> Ġ a b c d e h o s t . th the ĠĠ <mask>'.split()
MERGES = '#version: 0.2\nt h\nth e\nĠ Ġ\n'


@pytest.fixture(scope='session')
def roberta_folder(tmp_path_factory) -> pathlib.Path:
  """vocab.json and merges.txt; not to be written to."""
  folder = tmp_path_factory.mktemp('roberta')
  table = {piece: i for i, piece in enumerate(BYTES)}
  (folder / 'vocab.json').write_text(json.dumps(table))
  (folder / 'merges.txt').write_text(MERGES)
  return folder


@pytest.fixture(scope='session')
def roberta(roberta_folder) -> Subwords:
  return Subwords.of_folder(roberta_folder)
