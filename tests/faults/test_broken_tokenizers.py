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
def test_files_that_are_elsewhere_or_none(kind, name, tmp_path):
  folder = written(tmp_path / 'm', kind)
  Subwords.of_folder(folder)
  (folder / name).rename(tmp_path / 'secret')
  for target, said in (
    ('../secret', f'is a link to {tmp_path / "secret"}, outside'),
    ('/dev/zero', 'is a link to /dev/zero, outside'),
    ('nothing', 'there is no such file'),
  ):
    (folder / name).symlink_to(target)
    assert f'{name}: {said}' in fault(folder)
    (folder / name).unlink()
  os.mkfifo(folder / name)
  assert f'{name}: is not a file' in fault(folder)
  (folder / name).unlink()
  with (folder / name).open('wb') as file:
    file.truncate(2**40)
  assert f'{name}: the file has 1099511627776 bytes' in fault(folder)


@pytest.mark.parametrize('kind', KINDS)
def test_a_snapshot_of_the_cache_is_links_to_blobs(kind, tmp_path):
  expected = Subwords.of_folder(written(tmp_path / 'm', kind))
  model = tmp_path / 'models--org--name'
  snapshot = model / 'snapshots' / 'abc'
  snapshot.mkdir(parents=True)
  (model / 'blobs').mkdir()
  for number, file in enumerate(sorted((tmp_path / 'm').iterdir())):
    file.rename(model / 'blobs' / str(number))
    link = pathlib.Path('..', '..', 'blobs', str(number))
    (snapshot / file.name).symlink_to(link)
  assert Subwords.of_folder(snapshot).digest == expected.digest
