"""Label names of a warm start: embedded as the head there knows them."""

import dataclasses

import numpy as np
import pytest

from xjax.data.tokens_config import SubwordsConfig
from xjax.models.neural.neural_model import NeuralModel
from xjax.networks.encoders.bert import BertConfig
from xjax.networks.encoders.encoder import NoEmbedding
from xjax.networks.heads.descriptor_heads import UnifiedConfig, ZeroShotConfig
from xjax.networks.pooling import NoPooling
from xjax.run.fit import fit
from xjax.train.checkpoint import read_params
from xjax.train.initial.descriptors import saved_name_encoder
from xjax.train.loop import Loop
from xjax.train.workdir import Workdir

PIECES = 'encoder/embeddings/word'


@pytest.fixture(scope='module')
def tuned_config(config):
  """Label names by a small encoder that soon is another."""
  tokens = SubwordsConfig(max_tokens=16, buckets=(16,))
  return dataclasses.replace(
    config,
    data=dataclasses.replace(config.data, tokens=tokens),
    model=NeuralModel(
      NoEmbedding(),
      BertConfig(),
      NoPooling(),
      UnifiedConfig(chunk=8, hidden_labels=2, aligned=True),
    ),
    train=dataclasses.replace(config.train, learning_rate=0.1),
  )


@pytest.fixture(scope='module')
def tuned(tuned_config, tmp_path_factory):
  return fit(tuned_config, tmp_path_factory.mktemp('tuned') / 'run')


def warm(config, source, **fields):
  train = dataclasses.replace(
    config.train,
    init_from=f'{source.workdir}@{source.best_step}',
    learning_rate=1e-9,
    steps=1,
  )
  return dataclasses.replace(config, train=train, **fields)


@pytest.fixture
def begun(tuned_config, tuned, tmp_path, monkeypatch):
  """Begins a run from the tuned one: (workdir, parameters, those there)."""

  def killed(*arguments):
    raise KeyboardInterrupt

  def begin(**fields):
    monkeypatch.setattr(Loop, 'run', killed)
    with pytest.raises(KeyboardInterrupt):
      fit(warm(tuned_config, tuned, **fields), tmp_path / 'run')
    workdir = Workdir.at(tmp_path / 'run')
    return workdir, read_params(workdir.checkpoints, 0), ended(tuned)

  return begin


def ended(result):
  return read_params(result.workdir / 'checkpoints', result.best_step)


def kept(workdir):
  """The weights that names are embedded by."""
  with np.load(Workdir.at(workdir).encoder_weights) as file:
    return dict(file)


def all_metrics(result):
  return result.metrics['dev']['xjax']['all']


@pytest.mark.thorough
def test_a_warm_start_judges_like_its_source(tuned_config, tuned, tmp_path):
  there, end = kept(tuned.workdir), ended(tuned)
  assert np.abs(end[PIECES] - there[PIECES]).max() > 0.1
  result = fit(warm(tuned_config, tuned), tmp_path / 'run')
  start = read_params(result.workdir / 'checkpoints', 0)
  for path in (PIECES, 'head/descriptors'):
    np.testing.assert_array_equal(start[path], end[path], err_msg=path)
  for path, weights in kept(result.workdir).items():
    np.testing.assert_array_equal(weights, there[path], err_msg=path)
  assert all_metrics(result) == pytest.approx(all_metrics(tuned), nan_ok=True)


@pytest.mark.thorough
def test_a_head_that_starts_afresh_has_the_encoder_of_the_start(
  tuned_config, begun
):
  head = ZeroShotConfig(chunk=8)
  model = dataclasses.replace(tuned_config.model, head=head)
  workdir, _, end = begun(model=model)
  for path, weights in kept(workdir.path).items():
    np.testing.assert_array_equal(weights, end[path], err_msg=path)


def test_pieces_of_another_tokenizer(tuned_config, tuned, begun, caplog):
  """Vectors by piece, in the encoder and in that which embeds names."""
  caplog.set_level('INFO')
  workdir, start, end = begun(
    data=dataclasses.replace(tuned_config.data, n_train=24)
  )
  ours = workdir.subwords().pieces
  theirs = Workdir.at(tuned.workdir).subwords().pieces
  both = [piece for piece in ours if piece in theirs]
  assert '[PAD]' in both and ours != theirs[: len(ours)]
  here, there = ([x.index(piece) for piece in both] for x in (ours, theirs))
  np.testing.assert_array_equal(start[PIECES][here], end[PIECES][there])
  before = kept(tuned.workdir)[PIECES]
  np.testing.assert_array_equal(kept(workdir.path)[PIECES][here], before[there])
  assert f'loaded  {PIECES}: {len(both)} of {len(ours)} pieces' in caplog.text
  labels = workdir.label_space().labels
  names = saved_name_encoder(workdir, tuned_config.model).encode(labels)
  rows = start['head/descriptors'][: len(labels)]
  np.testing.assert_allclose(rows, names, atol=1e-6)


def test_an_encoder_of_other_sizes_embeds_nothing_here(
  tuned_config, begun, caplog
):
  tokens = SubwordsConfig(max_tokens=18, buckets=(18,))
  data = dataclasses.replace(tuned_config.data, tokens=tokens)
  workdir, start, _ = begun(data=data)
  assert 'has other sizes than the encoder of this run' in caplog.text
  for path, weights in kept(workdir.path).items():
    np.testing.assert_array_equal(weights, start[path], err_msg=path)
