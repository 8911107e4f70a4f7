import json
import pathlib

from huggingface_hub import constants
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import save_file

from xjax.core.atomic import WriteError
from xjax.core.errors import DataError
from xjax.networks.pretrained.architecture import architecture_of
from xjax.networks.pretrained.convert import parameter_shapes, to_hugging_face
from xjax.networks.pretrained.model_folder import (
  ModelFolder,
  check_vocabulary,
  write_model_folder,
)

CONFIG = {
  'model_type': 'bert',
  'vocab_size': 11,
  'hidden_size': 4,
  'num_hidden_layers': 1,
  'num_attention_heads': 2,
  'intermediate_size': 6,
  'max_position_embeddings': 5,
}
TINY = architecture_of(CONFIG, 'c')


def params_of():
  rng = np.random.default_rng(0)
  return {
    path: rng.normal(size=shape).astype(np.float32)
    for path, shape in parameter_shapes(TINY, pooler=True).items()
  }


def make(folder, dtype=np.float32, shards=0):
  """A folder as others write it."""
  folder.mkdir()
  (folder / 'config.json').write_text(json.dumps(CONFIG))
  tensors = {
    name: x.astype(dtype)
    for name, x in to_hugging_face(params_of(), TINY, 'ours').items()
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


def same(one, other):
  return one.keys() == other.keys() and all(
    np.array_equal(one[name], other[name]) for name in one
  )


@pytest.mark.parametrize('shards', [0, 1, 3])
def test_reads_files_and_shards(shards, tmp_path):
  make(tmp_path / 'm', shards=shards)
  folder = ModelFolder.at(str(tmp_path / 'm'))
  assert folder.architecture == TINY and folder.config == CONFIG
  assert same(folder.parameters(), params_of())


@pytest.mark.parametrize('dtype', [np.float16, ml_dtypes.bfloat16])
def test_half_precision_needs_no_torch(dtype, tmp_path):
  make(tmp_path / 'm', dtype)
  expected = {
    path: x.astype(dtype).astype(np.float32) for path, x in params_of().items()
  }
  assert same(ModelFolder.at(str(tmp_path / 'm')).parameters(), expected)


def test_a_snapshot_of_the_cache_is_links_to_blobs(tmp_path, monkeypatch):
  make(tmp_path / 'm', shards=2)
  model = tmp_path / 'hub' / 'models--org--name'
  snapshot = model / 'snapshots' / 'abc123'
  snapshot.mkdir(parents=True)
  (model / 'blobs').mkdir()
  (model / 'refs').mkdir()
  (model / 'refs' / 'main').write_text('abc123\n')
  for number, file in enumerate(sorted((tmp_path / 'm').iterdir())):
    file.rename(model / 'blobs' / str(number))
    link = pathlib.Path('..', '..', 'blobs', str(number))
    (snapshot / file.name).symlink_to(link)
  monkeypatch.setattr(constants, 'HF_HUB_CACHE', str(tmp_path / 'hub'))
  monkeypatch.chdir(tmp_path)
  assert same(ModelFolder.at('org/name').parameters(), params_of())


def test_what_is_written_is_read(tmp_path):
  config = CONFIG | {
    'architectures': ['BertForMaskedLM'],
    'auto_map': {'AutoModel': 'code.py'},
    'dtype': 'float16',
    'id2label': {'0': 'a'},
  }
  params = {path: jnp.asarray(x) for path, x in params_of().items()}
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
  assert same(again.parameters(), params_of())
  assert again.config == CONFIG | {
    'architectures': ['BertModel'],
    'id2label': {'0': 'a'},
    'torch_dtype': 'float32',
  }
  with safe_open(target / 'model.safetensors', 'numpy') as file:
    assert file.metadata() == {'format': 'pt'}


def test_nothing_is_written_over(tmp_path):
  (tmp_path / 'm').mkdir()
  write_model_folder(tmp_path / 'm', CONFIG, params_of())
  with pytest.raises(WriteError, match='exists already; choose a new folder'):
    write_model_folder(tmp_path / 'm', CONFIG, params_of())


def test_nothing_half_written_stays(tmp_path):
  texts = {'absent/tokenizer.json': ''}
  with pytest.raises(WriteError, match='m: cannot be written'):
    write_model_folder(tmp_path / 'm', CONFIG, params_of(), texts)
  params = params_of() | {'encoder/embeddings/word': np.zeros((3, 4))}
  with pytest.raises(DataError, match=r'word is \[3, 4\], not \[11, 4\]'):
    write_model_folder(tmp_path / 'm', CONFIG, params)
  assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
  ('size', 'rows'), [(30522, 30522), (30522, 30528), (30522, 30592), (5, 8)]
)
def test_tokenizers_that_fit(size, rows):
  architecture = architecture_of(CONFIG | {'vocab_size': rows}, 'c')
  check_vocabulary(size, architecture, 't')


@pytest.mark.parametrize(
  ('size', 'rows'), [(250002, 250037), (31102, 32102), (1, 9)]
)
def test_spare_rows_are_asked_for(size, rows):
  architecture = architecture_of(CONFIG | {'vocab_size': rows}, 'c')
  check_vocabulary(size, architecture, 't', spare_rows=True)
  with pytest.raises(DataError, match=f' {rows - size} rows .*spare_rows=True'):
    check_vocabulary(size, architecture, 't')


@pytest.mark.parametrize(('size', 'rows'), [(30523, 30522), (0, 8)])
def test_no_rows_are_to_spare(size, rows):
  architecture = architecture_of(CONFIG | {'vocab_size': rows}, 'c')
  with pytest.raises(DataError, match='belongs to the weights$'):
    check_vocabulary(size, architecture, 't', spare_rows=True)


@pytest.mark.parametrize(
  ('size', 'rows'),
  [(30523, 30522), (30521, 30522), (30000, 30528), (0, 8), (7, 11)],
)
def test_tokenizers_of_another_model(size, rows):
  architecture = architecture_of(CONFIG | {'vocab_size': rows}, 'c')
  with pytest.raises(DataError, match=f't: .* {size} ids .* {rows} rows'):
    check_vocabulary(size, architecture, 't')
