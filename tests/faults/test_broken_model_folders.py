"""Whatever a model's folder holds: its parameters, or one clear DataError."""

import io
import json
import os
import pathlib
import pickle
import zipfile

import numpy as np
import pytest
from safetensors.numpy import save_file

from tests.faults.damage import BERT, bert_tensors
from xjax.core.errors import DataError
from xjax.networks.pretrained.model_folder import ModelFolder

WEIGHTS = 'model.safetensors'
INDEX = 'model.safetensors.index.json'
SHARDS = tuple(f'model-{i:05}-of-00002.safetensors' for i in (1, 2))
WORD = 'embeddings.word_embeddings.weight'

TENSORS = bert_tensors()
LISTED = {name: SHARDS[i % 2] for i, name in enumerate(sorted(TENSORS))}


@pytest.fixture
def folder(tmp_path):
  path = tmp_path / 'm'
  path.mkdir()
  put_json(path / 'config.json', BERT)
  save_file(TENSORS, path / WEIGHTS)
  return path


@pytest.fixture
def sharded(folder):
  (folder / WEIGHTS).unlink()
  put_json(folder / INDEX, {'metadata': {}, 'weight_map': LISTED})
  for shard in SHARDS:
    part = {n: x for n, x in TENSORS.items() if LISTED[n] == shard}
    save_file(part, folder / shard)
  return folder


def put_json(path: pathlib.Path, value) -> None:
  path.write_text(json.dumps(value))


def header(value, body: bytes = b'') -> bytes:
  """A safetensors file that says what it likes."""
  text = value if isinstance(value, bytes) else json.dumps(value).encode()
  return len(text).to_bytes(8, 'little') + text + body


def tensor(shape, end, dtype='F32'):
  return {'dtype': dtype, 'shape': shape, 'data_offsets': [0, end]}


def text(name: str, data: bytes):
  return lambda folder: (folder / name).write_bytes(data)


def config(**fields):
  return text('config.json', json.dumps(BERT | fields).encode())


def remove(*names: str):
  return lambda folder: [(folder / name).unlink() for name in names]


def cut(name: str, kept: int):
  return lambda f: (f / name).write_bytes((f / name).read_bytes()[:kept])


def replace(name: str, make):
  def change(folder):
    (folder / name).unlink()
    make(folder / name)

  return change


def elsewhere(name: str):
  """The index lists a file outside of the folder."""

  def change(folder):
    (folder / SHARDS[0]).rename(folder.parent / 'secret.safetensors')
    file = name.format(outside=folder.parent)
    listed = {n: file if f == SHARDS[0] else f for n, f in LISTED.items()}
    put_json(folder / INDEX, {'weight_map': listed})

  return change


def value(number: float):
  def change(folder):
    word = TENSORS[WORD].copy()
    word[3, 1] = number
    save_file(TENSORS | {WORD: word}, folder / WEIGHTS)

  return change


DAMAGED = 'is damaged, or not a safetensors file'
NO_NAME = 'is not the name of a file in this folder'
NOT_FINITE = f'not finite (NaN, infinity, or beyond float32) in: {WORD}'
ONE_FILE = [
  (remove('config.json'), 'config.json: there is no such file'),
  (text('config.json', b''), 'config.json: not JSON'),
  (text('config.json', b'[1]'), 'config.json: a list, not a JSON object'),
  (text('config.json', b'{}'), 'config.json: "model_type" is missing'),
  (text('config.json', b'{"a": 1e999}'), 'holds a number too large for float'),
  (text('config.json', b'{"a": "\\ud800"}'), 'holds a broken Unicode char'),
  (config(hidden_size=2**60), '"hidden_size" is 1152921504606846976; it must'),
  (config(num_hidden_layers=-1), '"num_hidden_layers" is -1; it must be'),
  (remove(WEIGHTS), f'has neither {WEIGHTS} nor {INDEX}'),
  *((cut(WEIGHTS, kept), f'{WEIGHTS}: {DAMAGED}') for kept in (0, 8, -1)),
  *(
    (text(WEIGHTS, data), DAMAGED)
    for data in (
      (2**62).to_bytes(8, 'little') + b'{}',
      header({WORD: tensor([2**62, 8], 4)}, b'1234'),
      header({WORD: tensor([11, 4], 4)}, b'1234'),
      header({WORD: tensor([1], 2**40)}, b'1234'),
      header({WORD: tensor([1], 4, 'object')}, b'1234'),
      header({WORD: tensor([1], 4), 'b': tensor([1], 4)}, b'1234'),
    )
  ),
  *(
    (
      text(WEIGHTS, header({WORD: tensor([1], size, dtype)}, bytes(size))),
      f'{WORD} is {dtype}, not of a floating type',
    )
    for dtype, size in (('I64', 8), ('F8_E4M3', 1))
  ),
  (value(np.nan), NOT_FINITE),
  (value(np.inf), NOT_FINITE),
  (replace(WEIGHTS, os.mkdir), f'{WEIGHTS}: there is no such file'),
  (replace(WEIGHTS, os.mkfifo), f'{WEIGHTS}: there is no such file'),
]
SHARDED = [
  (remove(*SHARDS), f'{SHARDS[0]}: there is no such file'),
  (text(INDEX, b'[]'), f'{INDEX}: a list, not a JSON object'),
  (text(INDEX, b'{}'), f'{INDEX}: "weight_map" is missing; it must list'),
  (text(INDEX, b'{"weight_map": ["a"]}'), '"weight_map" is ["a"]; it must li'),
  (text(INDEX, b'{"weight_map": {"a": 3}}'), 'the file of "a" is 3, not a fil'),
  (elsewhere('../secret.safetensors'), NO_NAME),
  (elsewhere('{outside}/secret.safetensors'), NO_NAME),
  (elsewhere('sub/../../secret.safetensors'), NO_NAME),
  (elsewhere(''), NO_NAME),
  (elsewhere('a\0b'), NO_NAME),
  (cut(SHARDS[1], -4), f'{SHARDS[1]}: {DAMAGED}'),
]


def fault(folder: pathlib.Path) -> str:
  with pytest.raises(DataError) as error:
    ModelFolder.at(str(folder)).parameters()
  message = str(error.value)
  assert message.isascii() and str(folder) in message.partition('\n')[0]
  return message


@pytest.mark.parametrize(
  ('kind', 'number'),
  [
    *(('folder', i) for i in range(len(ONE_FILE))),
    *(('sharded', i) for i in range(len(SHARDED))),
  ],
)
def test_a_broken_folder_is_one_error(kind, number, request):
  folder = request.getfixturevalue(kind)
  change, message = (ONE_FILE if kind == 'folder' else SHARDED)[number]
  change(folder)
  assert message in fault(folder)


def bomb(path: pathlib.Path) -> bytes:
  """A pickle that makes a file when it is opened."""

  class Bomb:
    def __reduce__(self):
      return os.mkdir, (str(path),)

  return pickle.dumps(Bomb())


def zipped(data: bytes) -> bytes:
  file = io.BytesIO()
  with zipfile.ZipFile(file, 'w') as archive:
    archive.writestr('archive/data.pkl', data)
  return file.getvalue()


RENAMED = f'{WEIGHTS}: is a pickle, not a safetensors file'


@pytest.mark.parametrize(
  ('name', 'pack', 'said', 'more'),
  [
    (
      'pytorch_model.bin',
      bytes,
      'only pytorch_model.bin, which xjax does not read',
      'save_pretrained',
    ),
    (WEIGHTS, bytes, RENAMED, 'xjax never opens a pickle'),
    (WEIGHTS, zipped, RENAMED, 'xjax never opens a pickle'),
  ],
)
def test_pickles_are_not_opened(name, pack, said, more, folder, tmp_path):
  (folder / WEIGHTS).unlink()
  (folder / name).write_bytes(pack(bomb(tmp_path / 'run')))
  assert said in fault(folder) and more in fault(folder)
  assert not (tmp_path / 'run').exists()


def test_tensors_that_are_not_those_of_the_config(folder):
  tensors = dict(TENSORS, odd=np.zeros(3, np.float32))
  tensors[WORD] = tensors[WORD][:10]
  del tensors['embeddings.LayerNorm.bias']
  save_file(tensors, folder / WEIGHTS)
  assert fault(folder).splitlines() == [
    f'{folder / WEIGHTS}: the tensors do not match config.json',
    '  missing: embeddings.LayerNorm.bias',
    '  unexpected: odd',
    f'  wrong: {WORD} is [10, 4], not [11, 4]',
  ]
