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

from tests.faults.damage import BERT
from xjax.core.errors import DataError
from xjax.networks.pretrained.architecture import architecture_of
from xjax.networks.pretrained.convert import parameter_shapes, to_hugging_face
from xjax.networks.pretrained.model_folder import ModelFolder

WEIGHTS = 'model.safetensors'
INDEX = 'model.safetensors.index.json'
SHARDS = tuple(f'model-{i:05}-of-00002.safetensors' for i in (1, 2))
WORD = 'embeddings.word_embeddings.weight'


def sound_tensors():
  architecture = architecture_of(BERT, 'c')
  rng = np.random.default_rng(0)
  params = {
    path: rng.normal(size=shape).astype(np.float32)
    for path, shape in parameter_shapes(architecture).items()
  }
  return to_hugging_face(params, architecture, 'ours')


TENSORS = sound_tensors()
FIRST = sorted(TENSORS)[::2]
LISTED = {name: SHARDS[name not in FIRST] for name in TENSORS}


@pytest.fixture
def folder(tmp_path):
  """A sound folder of one file."""
  path = tmp_path / 'm'
  path.mkdir()
  put_json(path / 'config.json', BERT)
  save_file(TENSORS, path / WEIGHTS)
  return path


@pytest.fixture
def sharded(folder):
  """A sound folder of two shards."""
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


def fault(folder: pathlib.Path) -> str:
  with pytest.raises(DataError) as error:
    ModelFolder.at(str(folder)).parameters()
  said = str(error.value)
  assert said.isascii() and str(folder) in said.partition('\n')[0]
  return said


@pytest.mark.parametrize(
  ('data', 'said'),
  [
    (None, 'config.json: there is no such file'),
    (b'', 'config.json: not JSON'),
    (b'[1]', 'config.json: a list, not a JSON object'),
    (b'{}', 'config.json: "model_type" is missing'),
    (
      b'{"initializer_range": 1e999}',
      'config.json: holds a number too large for float64',
    ),
    (
      b'{"_name_or_path": "\\ud800"}',
      'json: holds a broken Unicode character (half of a surrogate pair)',
    ),
    (
      json.dumps(BERT | {'hidden_size': 2**60}).encode(),
      'config.json: "hidden_size" is 1152921504606846976; it must be',
    ),
    (
      json.dumps(BERT | {'num_hidden_layers': -1}).encode(),
      'config.json: "num_hidden_layers" is -1; it must be',
    ),
  ],
)
def test_config(data, said, folder):
  (folder / 'config.json').unlink()
  if data is not None:
    (folder / 'config.json').write_bytes(data)
  assert said in fault(folder)


def test_no_weights_at_all(folder):
  (folder / WEIGHTS).unlink()
  assert f'has neither {WEIGHTS} nor {INDEX}' in fault(folder)


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


@pytest.mark.parametrize('kept', [0, 8, -1])
def test_truncated_weights(kept, folder):
  data = (folder / WEIGHTS).read_bytes()[:kept]
  (folder / WEIGHTS).write_bytes(data)
  said = fault(folder)
  assert f'{WEIGHTS}: is damaged, or not a safetensors file' in said
  assert 'download or convert it again' in said


@pytest.mark.parametrize(
  'data',
  [
    (2**62).to_bytes(8, 'little') + b'{}',
    header({WORD: tensor([2**62, 8], 4)}, b'1234'),
    header({WORD: tensor([11, 4], 4)}, b'1234'),
    header({WORD: tensor([1], 2**40)}, b'1234'),
    header({WORD: tensor([1], 4, 'object')}, b'1234'),
    header({WORD: tensor([1], 4), 'b': tensor([1], 4)}, b'1234'),
  ],
)
def test_headers_that_lie(data, folder):
  (folder / WEIGHTS).write_bytes(data)
  assert 'is damaged, or not a safetensors file' in fault(folder)


@pytest.mark.parametrize(('dtype', 'size'), [('I64', 8), ('F8_E4M3', 1)])
def test_types_that_are_no_floats(dtype, size, folder):
  data = header({WORD: tensor([1], size, dtype)}, bytes(size))
  (folder / WEIGHTS).write_bytes(data)
  assert f'{WORD} is {dtype}, not of a floating type' in fault(folder)


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


@pytest.mark.parametrize('value', [np.nan, np.inf])
def test_values_that_are_not_finite(value, folder):
  word = TENSORS[WORD].copy()
  word[3, 1] = value
  save_file(TENSORS | {WORD: word}, folder / WEIGHTS)
  assert f'not finite (NaN, infinity, or beyond float32) in: {WORD}' in fault(
    folder
  )


def test_missing_shards(sharded):
  for shard in SHARDS:
    (sharded / shard).unlink()
  assert f'{SHARDS[0]}: there is no such file' in fault(sharded)


@pytest.mark.parametrize(
  ('index', 'said'),
  [
    (b'[]', 'a list, not a JSON object'),
    (b'{}', '"weight_map" is missing; it must list'),
    (b'{"weight_map": {}}', '"weight_map" is {}; it must list'),
    (b'{"weight_map": ["a"]}', '"weight_map" is ["a"]; it must list'),
    (b'{"weight_map": {"a": 3}}', 'the file of "a" is 3, not a file name'),
    (
      b'{"weight_map": {"a": null}}',
      'the file of "a" is missing, not a file name',
    ),
  ],
)
def test_indices_that_are_none(index, said, sharded):
  (sharded / INDEX).write_bytes(index)
  assert f'{INDEX}: {said}' in fault(sharded)


@pytest.mark.parametrize(
  'name',
  [
    '../secret.safetensors',
    '{outside}/secret.safetensors',
    'sub/../../secret.safetensors',
    '',
    'a\0b',
  ],
)
def test_indices_that_point_elsewhere(name, sharded, tmp_path):
  (sharded / SHARDS[0]).rename(tmp_path / 'secret.safetensors')
  name = name.format(outside=tmp_path)
  listed = {n: name if f == SHARDS[0] else f for n, f in LISTED.items()}
  put_json(sharded / INDEX, {'weight_map': listed})
  assert 'is not the name of a file in this folder' in fault(sharded)


@pytest.mark.parametrize(
  ('kind', 'name'),
  [('folder', 'config.json'), ('folder', WEIGHTS), ('sharded', SHARDS[0])],
)
def test_links_that_lead_elsewhere(kind, name, request, tmp_path):
  path = request.getfixturevalue(kind) / name
  path.rename(tmp_path / 'secret')
  path.symlink_to(pathlib.Path('..', 'secret'))
  said = fault(path.parent)
  assert (
    f'{path}: is a link to {tmp_path / "secret"}, outside the folder' in said
  )


def test_links_out_of_a_cache(folder, tmp_path):
  snapshot = tmp_path / 'models--a' / 'snapshots' / 'c'
  snapshot.parent.mkdir(parents=True)
  folder.rename(snapshot)
  (snapshot / WEIGHTS).rename(tmp_path / 'secret')
  (snapshot / WEIGHTS).symlink_to(tmp_path / 'secret')
  assert 'outside the folder' in fault(snapshot)


@pytest.mark.parametrize('target', ['nothing', WEIGHTS])
def test_links_that_lead_nowhere(target, folder):
  (folder / WEIGHTS).unlink()
  (folder / WEIGHTS).symlink_to(target)
  assert f'{WEIGHTS}: there is no such file' in fault(folder)


def test_folders_and_pipes_are_no_files(folder):
  for make in (os.mkdir, os.mkfifo):
    (folder / WEIGHTS).unlink(missing_ok=True)
    make(folder / WEIGHTS)
    assert f'{WEIGHTS}: is not a file' in fault(folder)
    (folder / WEIGHTS).rename(folder / make.__name__)


def test_shards_that_hold_something_else(sharded):
  moved = FIRST[0]
  swapped = LISTED | {moved: SHARDS[1], 'absent': SHARDS[0]}
  del swapped[FIRST[1]]
  put_json(sharded / INDEX, {'weight_map': swapped})
  said = fault(sharded)
  assert f'{INDEX}: does not match the shards: "{moved}" is in' in said


def test_a_damaged_shard_is_named(sharded):
  data = (sharded / SHARDS[1]).read_bytes()
  (sharded / SHARDS[1]).write_bytes(data[:-4])
  assert f'{sharded / SHARDS[1]}: is damaged, or not a' in fault(sharded)
