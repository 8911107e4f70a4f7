"""Tokenizer files that anyone may have made: tokens, or one clear DataError."""

import json
import os
import pathlib

import pytest

from xjax.core.errors import DataError
from xjax.data.text.subwords import Subwords

PIECES = '[PAD] [UNK] [CLS] [SEP] [MASK] a b ##a ##b the'.split()
BYTES = '<s> <pad> </s> <unk> Ġ a b t h e th the <mask>'.split()
KINDS = {
  'tokenizer.json': {'tokenizer.json': Subwords.fit(['a b the']).text},
  'vocab.txt': {'vocab.txt': '\n'.join(PIECES)},
  'vocab.json': {
    'vocab.json': json.dumps({piece: i for i, piece in enumerate(BYTES)}),
    'merges.txt': '#version: 0.2\nt h\nth e\n',
  },
}
BESIDE = {
  'tokenizer_config.json': '{"add_prefix_space": true}',
  'special_tokens_map.json': '{"mask_token": "b"}',
}
# (kind of tokenizer, file of its folder)
FILES = [
  (kind, name) for kind, files in KINDS.items() for name in (*files, *BESIDE)
]


def written(folder: pathlib.Path, kind: str) -> pathlib.Path:
  """A sound folder, whose path has no letters but ASCII."""
  folder.mkdir(parents=True)
  for name, text in (KINDS[kind] | BESIDE).items():
    (folder / name).write_text(text, 'utf-8')
  return folder


def fault(folder: pathlib.Path) -> str:
  with pytest.raises(DataError) as error:
    Subwords.of_folder(folder)
  return str(error.value)


@pytest.mark.parametrize(('kind', 'name'), FILES)
def test_what_is_no_file_is_one_error(kind, name, tmp_path):
  folder = written(tmp_path / 'm', kind)
  Subwords.of_folder(folder)
  (folder / name).unlink()
  os.mkfifo(folder / name)
  assert f'{name}: there is no such file' in fault(folder)
