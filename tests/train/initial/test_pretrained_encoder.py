"""Runs whose encoder comes from a folder: what they keep of it, and ask."""

import dataclasses
import json
import shutil

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file
from tokenizers import Tokenizer, models, pre_tokenizers, processors

from tests.fixtures.encoders import SIZES, write_encoder, write_weights
from tests.fixtures.first_states import first_state
from xjax.core.errors import ConfigError, DataError
from xjax.data.formats.jsonl import JsonlData
from xjax.data.schema import LabelSpace
from xjax.data.text.subwords import Subwords
from xjax.data.tokens_config import SubwordsConfig
from xjax.models.neural import neural_training as neural
from xjax.models.neural.neural_model import NeuralModel
from xjax.networks.encoders.bert import BertConfig
from xjax.networks.encoders.encoder import NoEmbedding
from xjax.networks.encoders.xlnet import XLNetConfig
from xjax.networks.heads.descriptor_heads import UnifiedConfig
from xjax.networks.heads.head import DescriptorConfig
from xjax.networks.heads.ova import OneVsAllConfig
from xjax.networks.pooling import ClsConfig, NoPooling
from xjax.networks.pretrained.model_folder import ModelFolder
from xjax.plan.sizes import XLNET_BASE, assumed_sizes
from xjax.run.fit import fit
from xjax.run.open_run import open_run
from xjax.train.initial.pretrained_encoder import (
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
    train=dataclasses.replace(config.train, steps=1, judge_every=2),
  )


@pytest.fixture(scope='module')
def run(from_folder, tmp_path_factory):
  return fit(from_folder, tmp_path_factory.mktemp('run') / 'run')


def changed(config, part, **fields):
  new = dataclasses.replace(getattr(config.model, part), **fields)
  model = dataclasses.replace(config.model, **{part: new})
  return dataclasses.replace(config, model=model)


XLNET = {'d_model': 8, 'n_layer': 2, 'n_head': 2, 'd_inner': 12}
SPECIAL = ('<unk>', '<s>', '</s>', '<cls>', '<sep>', '<pad>', '<mask>')
SEP_CLS = [SPECIAL.index('<sep>'), SPECIAL.index('<cls>')]
AT_END = '$A:0 <sep>:0 <cls>:2'


def unigram(template=AT_END):
  """Returns the text of a tokenizer.json of XLNet's kind."""
  pieces = [*SPECIAL, '▁', 'pa', 'te', '▁pa', '▁te', *'abdeghiklmnoprstuw']
  vocabulary = [(piece, -float(i)) for i, piece in enumerate(pieces)]
  tokenizer = Tokenizer(models.Unigram(vocabulary, unk_id=0))
  tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
  tokenizer.post_processor = processors.TemplateProcessing(
    single=template, special_tokens=[(SPECIAL[i], i) for i in SEP_CLS]
  )
  tokenizer.add_special_tokens(list(SPECIAL))
  return tokenizer.to_str()


def write_xlnet(folder, pooler=False, template=AT_END, **fields):
  text = unigram(template)
  size = len(json.loads(text)['model']['vocab'])
  config = XLNET | {'model_type': 'xlnet', 'vocab_size': size} | fields
  return write_weights(folder, pooler, config, {'tokenizer.json': text})


def as_xlnet(config):
  folder = config.model.encoder.folder
  model = dataclasses.replace(config.model, encoder=XLNetConfig(folder=folder))
  return dataclasses.replace(config, model=model)


@pytest.fixture(scope='module')
def xlnet(from_folder, tmp_path_factory):
  """(config, parameters by path) of an XLNet without a pooler."""
  folder = tmp_path_factory.mktemp('xlnet') / 'model'
  params = write_xlnet(folder)
  config = as_xlnet(changed(from_folder, 'encoder', folder=str(folder)))
  return config, params


def started(config):
  """Returns the fresh parameters of a run, and those with its encoder."""
  space = LabelSpace((), np.ones(9, np.int32), 40, 9)
  architecture = ModelFolder.at(config.model.encoder.folder).architecture
  _, state, fresh = first_state(config, space, 0, architecture)
  return fresh, by_path(start_encoder(state, config.model).params)


@pytest.mark.parametrize('family', ['bert', 'xlnet'])
def test_the_run_begins_with_the_weights(family, from_folder, encoder, xlnet):
  config, weights = xlnet if family == 'xlnet' else (from_folder, encoder[1])
  fresh, params = started(config)
  for path, values in weights.items():
    np.testing.assert_array_equal(params[path], values, err_msg=path)
  # A pooler without pretrained weights starts afresh.
  pooler = 'pooling/dense/kernel'
  assert (pooler in weights) == (family == 'bert')
  if pooler not in weights:
    np.testing.assert_array_equal(params[pooler], fresh[pooler])


def test_xlnet_reads_special_tokens_after_the_text(xlnet):
  tokenizer = ModelFolder.at(xlnet[0].model.encoder.folder).tokenizer()
  for most in (2, 5, 16):
    ids = tokenizer.encode('pa te ' * 20, most).tolist()
    assert len(ids) == most and ids[-2:] == SEP_CLS


@pytest.mark.thorough
def test_the_folder_may_go_after_the_start(from_folder, run, tmp_path):
  copy = shutil.copytree(run.workdir, tmp_path / 'run')
  config = changed(from_folder, 'encoder', folder=str(tmp_path / 'gone'))
  longer = dataclasses.replace(config.train, steps=2)
  assert fit(dataclasses.replace(config, train=longer), copy).steps == 2
  assert open_run(copy).predict(['pa te'], 3)


def test_the_tokenizer_and_the_sizes_are_the_run_s_own(run, tmp_path):
  shutil.copytree(run.workdir, tmp_path / 'run')
  kept = tmp_path / 'run' / 'features' / 'tokenizer.json'
  own = kept.read_text()
  Subwords.fit(['other words']).save(kept)
  with pytest.raises(DataError, match='tokenizer.json: is not the file that'):
    open_run(tmp_path / 'run')
  kept.write_text(own)
  kept.with_name('encoder.json').write_text('{}')
  with pytest.raises(DataError, match='features/encoder.json: '):
    open_run(tmp_path / 'run')


def test_an_encoder_that_nobody_trained(from_folder, tmp_path):
  made = changed(from_folder, 'encoder', folder='')
  check_encoder(made.model, made.data)
  row = {'id': 'one', 'text': 'pa te', 'labels': ['x']}
  (tmp_path / 'train.jsonl').write_text(json.dumps(row))
  data = JsonlData(dir=str(tmp_path), tokens=made.data.tokens)
  with pytest.raises(ConfigError, match="config.model.encoder.folder='': give"):
    fit(dataclasses.replace(made, data=data), tmp_path / 'run')


class Killed(Exception):
  """Before the first checkpoint."""


def test_a_start_that_did_not_get_far_leaves_nothing_to_the_next(
  from_folder, tmp_path, monkeypatch
):
  def kill(*_):
    raise Killed

  monkeypatch.setattr(neural, 'start_encoder', kill)
  write_encoder(tmp_path / 'first', pooler=True)
  write_encoder(tmp_path / 'second', pooler=True, words='other')
  workdir = Workdir.at(tmp_path / 'run')
  for name in ('first', 'second'):
    folder = str(tmp_path / name)
    with pytest.raises(Killed):
      fit(changed(from_folder, 'encoder', folder=folder), workdir.path)
    own = ModelFolder.at(folder)
    assert workdir.subwords().digest == own.tokenizer().digest
    assert workdir.architecture() == own.architecture


def narrow(folder):
  weights = load_file(folder / 'model.safetensors')
  weights['pooler.dense.bias'] = np.zeros(3, np.float32)
  save_file(weights, folder / 'model.safetensors')


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


def xlnet_folder(**fields):
  def write(folder):
    shutil.rmtree(folder)
    write_xlnet(folder, **fields)

  return write


MISFITS = {
  'model': (shutil.rmtree, same, DataError),
  r'is \[3\], not \[8\]': (narrow, same, DataError),
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
  r'"xlnet"; set config.model.encoder=XLNetConfig\(...\)': (
    *(xlnet_folder(), same, ConfigError),
  ),
  # A summary token in another place.
  'adds 1 special tokens before .* XLNet needs <sep> and': (
    *(xlnet_folder(template='<cls> $A <sep>'), as_xlnet, DataError),
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
  check_encoder(config.model, config.data)
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
  check_encoder(config.model, config.data)
  tokenizer, sizes = first_encoder(config.model, config.data, train=None)
  assert len(tokenizer) < sizes['vocab_size']


def test_a_plan_without_a_folder_assumes_xlnet_base(xlnet):
  config = changed(xlnet[0], 'encoder', folder='')
  sizes = assumed_sizes(config, 100, 1000)
  assert sizes.architecture == XLNET_BASE
  assert 'the encoder has the sizes of XLNet-base' in sizes.assumed
