import json
import pathlib

from huggingface_hub import constants
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import save_file

from tests.faults.damage import BERT
from tests.fixtures.encoders import random_params, same
from xjax.core.atomic import WriteError
from xjax.core.errors import DataError
from xjax.networks.pretrained.architecture import architecture_of
from xjax.networks.pretrained.convert import to_hugging_face
from xjax.networks.pretrained.model_folder import (
  ModelFolder,
  check_vocabulary,
  find_model,
  write_model_folder,
)

TINY = architecture_of(BERT, 'c')


def make(folder, dtype=np.float32, shards=0):
  """A folder as others write it."""
  folder.mkdir()
  (folder / 'config.json').write_text(json.dumps(BERT))
  tensors = {
    name: x.astype(dtype)
    for name, x in to_hugging_face(random_params(TINY), TINY).items()
  }
  if not shards:
    save_file(tensors, folder / 'model.safetensors')
    return
  names, listed = sorted(tensors), {}
  for shard in range(shards):
    file = f'model-{shard + 1:05}-of-{shards:05}.safetensors'
    part = {name: tensors[name] for name in names[shard::shards]}
    save_file(part, folder / file)
    listed |= dict.fromkeys(part, file)
  index = {'metadata': {'total_size': 1}, 'weight_map': listed}
  (folder / 'model.safetensors.index.json').write_text(json.dumps(index))


@pytest.mark.parametrize(
  ('dtype', 'shards'),
  [
    *((np.float32, shards) for shards in (0, 1, 3)),
    # These need no torch.
    *((dtype, 0) for dtype in (np.float16, ml_dtypes.bfloat16)),
  ],
)
def test_reads_files_and_shards_of_any_precision(dtype, shards, tmp_path):
  make(tmp_path / 'm', dtype, shards)
  folder = ModelFolder.at(str(tmp_path / 'm'))
  assert folder.architecture == TINY and folder.config == BERT
  expected = {
    path: x.astype(dtype).astype(np.float32)
    for path, x in random_params(TINY).items()
  }
  assert same(folder.parameters(), expected)


COMMIT = 'c' * 40


@pytest.fixture
def cache(tmp_path, monkeypatch):
  folder = tmp_path / 'cache'
  monkeypatch.chdir(tmp_path)
  monkeypatch.setattr(constants, 'HF_HUB_CACHE', str(folder))
  return folder


def put(cache, name, commit=COMMIT):
  """A model in the cache; its snapshot is of COMMIT."""
  model = cache / name
  (model / 'snapshots' / COMMIT).mkdir(parents=True)
  (model / 'refs').mkdir()
  (model / 'refs' / 'main').write_text(commit)
  (model / 'snapshots' / COMMIT / 'config.json').write_text('{}')
  return model / 'snapshots' / COMMIT


def test_a_snapshot_of_the_cache_is_links_to_blobs(cache, tmp_path):
  make(tmp_path / 'm', shards=2)
  snapshot = put(cache, 'models--org--name')
  (snapshot / 'config.json').unlink()
  blobs = cache / 'models--org--name' / 'blobs'
  blobs.mkdir()
  for number, file in enumerate(sorted((tmp_path / 'm').iterdir())):
    file.rename(blobs / str(number))
    link = pathlib.Path('..', '..', 'blobs', str(number))
    (snapshot / file.name).symlink_to(link)
  assert same(ModelFolder.at('org/name').parameters(), random_params(TINY))


def test_what_is_written_is_read(tmp_path):
  config = BERT | {
    'architectures': ['BertForMaskedLM'],
    'auto_map': {'AutoModel': 'code.py'},
    'dtype': 'float16',
    'id2label': {'0': 'a'},
  }
  params = {path: jnp.asarray(x) for path, x in random_params(TINY).items()}
  params['head/kernel'] = jnp.zeros(3)
  target = tmp_path / 'deep' / 'to'
  write_model_folder(target, config, params, {'tokenizer.json': '"é"'})
  assert sorted(file.name for file in target.iterdir()) == [
    'config.json',
    'model.safetensors',
    'tokenizer.json',
  ]
  assert (target / 'tokenizer.json').read_text('utf-8') == '"é"'
  again = ModelFolder.at(str(target))
  assert same(again.parameters(), random_params(TINY))
  assert again.config == BERT | {
    'architectures': ['BertModel'],
    'id2label': {'0': 'a'},
    'torch_dtype': 'float32',
  }
  with safe_open(target / 'model.safetensors', 'numpy') as file:
    assert file.metadata() == {'format': 'pt'}


def test_nothing_is_written_over(tmp_path):
  (tmp_path / 'm').mkdir()
  write_model_folder(tmp_path / 'm', BERT, random_params(TINY))
  with pytest.raises(WriteError, match='exists already; choose a new folder'):
    write_model_folder(tmp_path / 'm', BERT, random_params(TINY))


def test_nothing_half_written_stays(tmp_path):
  texts = {'absent/tokenizer.json': ''}
  with pytest.raises(WriteError, match='m: cannot be written'):
    write_model_folder(tmp_path / 'm', BERT, random_params(TINY), texts)
  assert list(tmp_path.iterdir()) == []


FITTING = [(30522, 30522), (30522, 30528), (30522, 30592), (5, 8)]
SPARE = [(250002, 250037), (31102, 32102), (1, 9)]


@pytest.mark.parametrize(
  ('sizes', 'spare_rows'),
  [*((sizes, False) for sizes in FITTING), *((sizes, True) for sizes in SPARE)],
)
def test_tokenizers_that_fit(sizes, spare_rows):
  architecture = architecture_of(BERT | {'vocab_size': sizes[1]}, 'c')
  check_vocabulary(sizes[0], architecture, 't', spare_rows)


@pytest.mark.parametrize(
  ('size', 'rows', 'spare_rows', 'says'),
  [
    (250002, 250037, False, ' 35 rows .*spare_rows=True'),
    (31102, 32102, False, ' 1000 rows .*spare_rows=True'),
    (1, 9, False, ' 8 rows .*spare_rows=True'),
    (30523, 30522, True, 'belongs to the weights$'),
    (0, 8, True, 'belongs to the weights$'),
    (30523, 30522, False, 't: .* 30523 ids .* 30522 rows'),
    (30521, 30522, False, 't: .* 30521 ids .* 30522 rows'),
    (30000, 30528, False, 't: .* 30000 ids .* 30528 rows'),
    (0, 8, False, 't: .* 0 ids .* 8 rows'),
    (7, 11, False, 't: .* 7 ids .* 11 rows'),
  ],
)
def test_tokenizers_of_another_model(size, rows, spare_rows, says):
  architecture = architecture_of(BERT | {'vocab_size': rows}, 'c')
  with pytest.raises(DataError, match=says):
    check_vocabulary(size, architecture, 't', spare_rows)


def test_a_name_is_looked_up(cache):
  snapshot = put(cache, 'models--org--na-me.v2')
  assert find_model('org/na-me.v2') == snapshot


def test_a_folder_comes_first(cache, tmp_path):
  put(cache, 'models--org--name')
  (tmp_path / 'org' / 'name').mkdir(parents=True)
  assert find_model('org/name').resolve() == tmp_path / 'org' / 'name'
  assert find_model(str(tmp_path)) == tmp_path


@pytest.mark.parametrize('commit', [None, '..', 'd' * 40])
def test_an_absent_model_says_where_it_was_looked_for(cache, commit):
  if commit is not None:
    put(cache, 'models--org--name', commit)
  with pytest.raises(DataError) as error:
    find_model('org/name')
  assert str(cache) in str(error.value)
  assert 'hf download org/name' in str(error.value)


@pytest.mark.parametrize(
  'name', ['', '../x', '/nowhere/at/all', 'a/../b', 'a\0b', 'é']
)
def test_what_is_no_name_is_a_folder_that_is_not_there(name, cache):
  with pytest.raises(DataError, match='is neither a folder nor the name'):
    find_model(name)


def test_a_file_is_no_folder(cache, tmp_path):
  (tmp_path / 'm').write_text('')
  with pytest.raises(DataError, match='m: is a file; give the folder'):
    find_model('m')
