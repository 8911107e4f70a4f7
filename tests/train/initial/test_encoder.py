"""Runs whose encoder comes from a folder: what they keep of it, and ask."""

import dataclasses
import json
import shutil

import jax
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from tests.fixtures.encoders import SIZES, write_encoder, write_weights
from xjax.core.errors import ConfigError, DataError
from xjax.data.config import SubwordsConfig
from xjax.data.formats.jsonl import JsonlData
from xjax.data.text.subwords import Subwords
from xjax.models.neural import neural_training as neural
from xjax.models.neural.neural_model import NeuralModel
from xjax.models.neural.neural_plan import plan_neural
from xjax.networks.encoders.bert import BertConfig
from xjax.networks.encoders.encoder import NoEmbedding
from xjax.networks.heads.head import DescriptorConfig
from xjax.networks.heads.ova import OneVsAllConfig
from xjax.networks.heads.unified import UnifiedConfig
from xjax.networks.pooling import ClsConfig, NoPooling
from xjax.run.fit import fit
from xjax.run.open_run import open_run
from xjax.train.checkpoint import read_params
from xjax.train.initial.encoder import (
  check_encoder,
  first_encoder,
  planned_architecture,
  start_encoder,
)
from xjax.train.parameters import by_path
from xjax.train.workdir import Workdir


@pytest.fixture(scope='module')
def encoder(tmp_path_factory):
  """(folder, parameters by path) of an encoder with a pooler."""
  path = tmp_path_factory.mktemp('encoder')
  params = write_encoder(path / 'model', pooler=True)
  return path / 'model', params


@pytest.fixture(scope='module')
def from_folder(config, encoder):
  """The small config with this encoder and its pooler."""
  tokens = SubwordsConfig(max_tokens=16, buckets=(16,))
  return dataclasses.replace(
    config,
    data=dataclasses.replace(config.data, tokens=tokens),
    model=NeuralModel(
      NoEmbedding(),
      BertConfig(folder=str(encoder[0])),
      ClsConfig(pooler=True),
      OneVsAllConfig(chunk=8),
    ),
    train=dataclasses.replace(config.train, steps=2, judge_every=2),
  )


@pytest.fixture(scope='module')
def run(from_folder, tmp_path_factory):
  return fit(from_folder, tmp_path_factory.mktemp('run') / 'run')


def changed(config, part, **fields):
  new = dataclasses.replace(getattr(config.model, part), **fields)
  model = dataclasses.replace(config.model, **{part: new})
  return dataclasses.replace(config, model=model)


def test_the_run_begins_with_the_weights(from_folder, encoder, run):
  kept = Workdir.at(run.workdir)
  mesh, space = open_run(kept.path).scorer.mesh, run.corpus.label_space
  plan = plan_neural(from_folder, space, 0, mesh, kept.architecture())
  with jax.set_mesh(mesh):
    state = plan.init(jax.random.key(0))
  started = by_path(start_encoder(state, from_folder.model).params)
  for path, values in encoder[1].items():
    np.testing.assert_array_equal(started[path], values, err_msg=path)
  moved = 'encoder/layers/0/ffn/inner/kernel'
  after = read_params(kept.checkpoints, 2)
  assert not np.array_equal(after[moved], started[moved])


def test_the_folder_may_go_after_the_start(from_folder, run, tmp_path):
  copy = shutil.copytree(run.workdir, tmp_path / 'run')
  config = changed(from_folder, 'encoder', folder=str(tmp_path / 'gone'))
  longer = dataclasses.replace(config.train, steps=3)
  assert fit(dataclasses.replace(config, train=longer), copy).steps == 3
  assert open_run(copy).predict(['pa te'], 3)


def test_the_tokenizer_and_the_sizes_are_the_run_s_own(run, tmp_path):
  shutil.copytree(run.workdir, tmp_path / 'run')
  kept = tmp_path / 'run' / 'features' / 'tokenizer.json'
  own = kept.read_text()
  other = Subwords.fit(['other words'])
  other.save(kept)
  with pytest.raises(DataError, match='not the vocabulary'):
    open_run(tmp_path / 'run')
  kept.write_text(own)
  sizes = kept.with_name('encoder.json')
  for content in ('{', '{}', None):
    sizes.unlink() if content is None else sizes.write_text(content)
    with pytest.raises(DataError, match='features/encoder.json: '):
      open_run(tmp_path / 'run')


def test_an_encoder_that_nobody_trained(from_folder, tmp_path):
  made = changed(from_folder, 'encoder', folder='')
  check_encoder(made.model, made.data, Workdir.at(tmp_path / 'run'))
  row = {'id': 'one', 'text': 'pa te', 'labels': ['x']}
  (tmp_path / 'train.jsonl').write_text(json.dumps(row))
  data = JsonlData(dir=str(tmp_path), tokens=made.data.tokens)
  with pytest.raises(ConfigError, match="config.model.encoder.folder='': give"):
    fit(dataclasses.replace(made, data=data), tmp_path / 'run')


class Killed(Exception):
  """Before the first checkpoint."""


def test_starts_that_did_not_get_far(from_folder, tmp_path, monkeypatch):
  def kill(*_):
    raise Killed

  def begin(name):
    folder = str(tmp_path / name)
    fit(changed(from_folder, 'encoder', folder=folder), tmp_path / 'run')

  write_encoder(tmp_path / 'first', pooler=True)
  write_encoder(tmp_path / 'words', pooler=True, words='other')
  write_encoder(tmp_path / 'sizes', pooler=True, num_hidden_layers=2)
  shutil.copytree(tmp_path / 'first', tmp_path / 'alike')
  monkeypatch.setattr(neural, 'start_encoder', kill)
  with pytest.raises(Killed):
    begin('first')
  assert (tmp_path / 'run' / 'checkpoints').is_dir()
  with pytest.raises(ConfigError, match='another tokenizer.*a new workdir'):
    begin('words')
  with pytest.raises(ConfigError, match='other sizes.*a new workdir'):
    begin('sizes')
  with pytest.raises(DataError, match='gone'):
    begin('gone')
  with pytest.raises(Killed):
    begin('alike')


def narrow(folder):
  weights = load_file(folder / 'model.safetensors')
  weights['pooler.dense.bias'] = np.zeros(3, np.float32)
  save_file(weights, folder / 'model.safetensors')


def without_a_shard(folder):
  (folder / 'model.safetensors').rename(folder / 'one.safetensors')
  listed = dict.fromkeys(
    load_file(folder / 'one.safetensors'), 'one.safetensors'
  )
  index = {'weight_map': listed | {'more': 'two.safetensors'}}
  path = folder / 'model.safetensors.index.json'
  path.write_text(json.dumps(index))


def with_another_tokenizer(folder):
  Subwords.fit(['only these']).save(folder / 'tokenizer.json')


def without_a_pooler(folder):
  shutil.rmtree(folder)
  write_encoder(folder, pooler=False)


def with_more_special_tokens(folder):
  shutil.rmtree(folder)
  tokenizer = json.loads(Subwords.fit(['pa te']).text)
  first, *pieces, last = tokenizer['post_processor']['single']
  tokenizer['post_processor']['single'] = [first, first, *pieces, last, last]
  config = SIZES | {'vocab_size': len(tokenizer['model']['vocab'])}
  texts = {'tokenizer.json': json.dumps(tokenizer)}
  write_weights(folder, True, config, texts)


def read_up_to(config, n):
  tokens = SubwordsConfig(max_tokens=n, buckets=(n,))
  data = dataclasses.replace(config.data, tokens=tokens)
  return dataclasses.replace(config, data=data)


def named(config, n):
  head = UnifiedConfig(descriptor=DescriptorConfig(max_words=n))
  model = dataclasses.replace(config.model, pooling=NoPooling(), head=head)
  return dataclasses.replace(config, model=model)


def same(given):
  return given


MISFITS = {
  'model': (shutil.rmtree, same, DataError),
  r'is \[3\], not \[8\]': (narrow, same, DataError),
  'two.safetensors': (without_a_shard, same, DataError),
  'use the tokenizer that belongs': (with_another_tokenizer, same, DataError),
  'has no pooler.*set config.model.pooling.pooler=False': (
    *(without_a_pooler, same, ConfigError),
  ),
  'max_tokens=4: must be more than 4, .* special tokens': (
    *(with_more_special_tokens, lambda x: read_up_to(x, 4), ConfigError),
  ),
  'max_tokens=24.* at most 20': (
    *(same, lambda x: read_up_to(x, 24), ConfigError),
  ),
  'max_words=19: .* at most 20 tokens, including 2 special': (
    *(same, lambda x: named(x, 19), ConfigError),
  ),
}


@pytest.mark.parametrize('said', MISFITS)
def test_what_does_not_fit_is_said_before_anything_is_written(
  said, from_folder, encoder, tmp_path
):
  damage, change, error = MISFITS[said]
  shutil.copytree(encoder[0], tmp_path / 'model')
  damage(tmp_path / 'model')
  config = changed(from_folder, 'encoder', folder=str(tmp_path / 'model'))
  with pytest.raises(error, match=said):
    fit(change(config), tmp_path / 'run')
  assert not (tmp_path / 'run').exists()


def test_the_longest_names_that_it_reads(from_folder, tmp_path):
  config = named(from_folder, 18)
  check_encoder(config.model, config.data, Workdir.at(tmp_path / 'run'))
  # One that is made here reads them all.
  made = changed(named(from_folder, 30), 'encoder', folder='')
  assert planned_architecture(made.model, made.data).max_tokens == 32


def test_spare_rows_are_for_pieces_that_nobody_has(
  from_folder, encoder, tmp_path
):
  shutil.copytree(encoder[0], tmp_path / 'model')
  with_another_tokenizer(tmp_path / 'model')
  config = changed(
    from_folder, 'encoder', folder=str(tmp_path / 'model'), spare_rows=True
  )
  check_encoder(config.model, config.data, Workdir.at(tmp_path / 'run'))
  tokenizer, sizes = first_encoder(config.model, config.data, train=None)
  assert len(tokenizer) < sizes['vocab_size']
