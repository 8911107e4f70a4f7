"""Runs whose encoder is an XLNet: from a folder, exported, without a folder."""

import dataclasses
import functools
import json

import jax
import numpy as np
import pytest
from tokenizers import Tokenizer, models, pre_tokenizers, processors

from tests.fixtures.encoders import SIZES as BERT_SIZES, write_weights
from xjax.core.errors import ConfigError, DataError
from xjax.data.config import SubwordsConfig
from xjax.data.text.subwords import Subwords
from xjax.models.neural.neural_model import NeuralModel
from xjax.models.neural.neural_plan import plan_neural
from xjax.networks.encoders.bert import BertConfig
from xjax.networks.encoders.encoder import NoEmbedding
from xjax.networks.encoders.xlnet import XLNetConfig
from xjax.networks.heads.ova import OneVsAllConfig
from xjax.networks.pooling import ClsConfig
from xjax.networks.pretrained.model_folder import ModelFolder
from xjax.plan.sizes import XLNET_BASE, assumed_sizes
from xjax.run.export import export_encoder
from xjax.run.fit import fit
from xjax.run.open_run import open_run
from xjax.train.checkpoint import read_params
from xjax.train.initial.encoder import check_encoder, start_encoder
from xjax.train.parameters import by_path
from xjax.train.workdir import Workdir

SIZES = {'d_model': 8, 'n_layer': 2, 'n_head': 2, 'd_inner': 12}
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
  config = SIZES | {'model_type': 'xlnet', 'vocab_size': size} | fields
  return write_weights(folder, pooler, config, {'tokenizer.json': text})


@pytest.fixture(scope='module')
def xlnet(tmp_path_factory):
  """(folder, parameters by path) of an encoder without a pooler."""
  path = tmp_path_factory.mktemp('encoder') / 'model'
  return path, write_xlnet(path)


@pytest.fixture(scope='module')
def from_folder(config, xlnet):
  """The small config with this encoder, and with a pooler of its own."""
  return dataclasses.replace(
    config,
    data=dataclasses.replace(config.data, tokens=SubwordsConfig(16, (16,))),
    model=NeuralModel(
      NoEmbedding(),
      XLNetConfig(folder=str(xlnet[0])),
      ClsConfig(pooler=True),
      OneVsAllConfig(chunk=8),
    ),
    train=dataclasses.replace(config.train, steps=2, judge_every=2),
  )


@pytest.fixture(scope='module')
def run(from_folder, tmp_path_factory):
  return fit(from_folder, tmp_path_factory.mktemp('run') / 'w')


def changed(config, **parts):
  model = dataclasses.replace(config.model, **parts)
  return dataclasses.replace(config, model=model)


def started(config, workdir):
  """Returns the first parameters of a run of this encoder, by path."""
  kept = Workdir.at(workdir)
  mesh, space = open_run(workdir).scorer.mesh, kept.label_space()
  plan = plan_neural(config, space, 0, mesh, kept.architecture())
  with jax.set_mesh(mesh):
    fresh = plan.init(jax.random.key(0))
    pooler = np.asarray(by_path(fresh.params)['pooling/dense/kernel'])
    return by_path(start_encoder(fresh, config.model).params), pooler


def test_a_run_begins_with_the_weights_and_a_fresh_pooler(
  from_folder, xlnet, run
):
  params, pooler = started(from_folder, run.workdir)
  for path, values in xlnet[1].items():
    np.testing.assert_array_equal(params[path], values, err_msg=path)
  np.testing.assert_array_equal(params['pooling/dense/kernel'], pooler)
  assert run.steps == 2
  after = read_params(Workdir.at(run.workdir).checkpoints, 2)
  for path in ('attention/segment', 'attention/position/kernel'):
    path = f'encoder/layers/0/{path}'
    assert not np.array_equal(after[path], params[path])
  # The workdir has the tokenizer, which ends every text by <sep> <cls>.
  tokenizer = Workdir.at(run.workdir).subwords()
  for most in (2, 5, 16):
    ids = tokenizer.encode('pa te ' * 20, most).tolist()
    assert len(ids) == most and ids[-2:] == SEP_CLS


def test_an_exported_folder_starts_another_run(from_folder, run, tmp_path):
  export_encoder(run.workdir, tmp_path / 'm')
  trained = by_path(open_run(run.workdir).scorer.params)
  parameters = ModelFolder.at(str(tmp_path / 'm')).parameters()
  assert 'pooling/dense/kernel' in parameters
  for path, values in parameters.items():
    np.testing.assert_array_equal(values, trained[path], err_msg=path)
  config = changed(from_folder, encoder=XLNetConfig(folder=str(tmp_path / 'm')))
  check_encoder(config.model, config.data, Workdir.at(run.workdir))
  params, _ = started(config, run.workdir)
  for path, values in parameters.items():
    np.testing.assert_array_equal(params[path], values, err_msg=path)
  files = json.loads((tmp_path / 'm' / 'tokenizer_config.json').read_text())
  assert files['padding_side'] == 'left'
  assert 'model_max_length' not in files
  for name in ('cls', 'sep', 'pad', 'unk'):
    assert files[f'{name}_token'] == f'<{name}>'


def test_a_plan_without_a_folder_assumes_xlnet_base(from_folder):
  config = changed(from_folder, encoder=XLNetConfig())
  sizes = assumed_sizes(config, 100, 1000)
  assert sizes.architecture == XLNET_BASE
  assert 'the encoder has the sizes of XLNet-base' in sizes.assumed


def of_the_bert_family(folder):
  tokenizer = Subwords.fit(['pa te'], summary_last=True)
  config = BERT_SIZES | {'vocab_size': len(tokenizer), 'model_type': 'bert'}
  write_weights(folder, True, config, {'tokenizer.json': tokenizer.text})


MISFITS = {
  r'"xlnet"; set config.model.encoder=XLNetConfig\(...\)': (
    *(BertConfig, write_xlnet, ConfigError),
  ),
  'need special tokens on both sides': (
    *(BertConfig, of_the_bert_family, DataError),
  ),
}
# A summary token in another place.
MISFITS |= {
  said: (XLNetConfig, functools.partial(write_xlnet, template=x), DataError)
  for x, said in (
    ('<cls> $A <sep>', 'adds 1 special tokens before .* XLNet needs <sep> and'),
    ('$A <cls>', '1 after it; XLNet needs'),
    ('<cls> $A', 'no special tokens around'),
  )
}


@pytest.mark.parametrize('said', MISFITS)
def test_folders_of_another_kind_are_refused(said, from_folder, tmp_path):
  config, write, error = MISFITS[said]
  write(tmp_path / 'm')
  config = changed(from_folder, encoder=config(folder=str(tmp_path / 'm')))
  with pytest.raises(error, match=said):
    fit(config, tmp_path / 'w')
  assert not (tmp_path / 'w').exists()
