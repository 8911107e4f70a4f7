"""Which labels a neural model scores, and which it calibrates by."""

import dataclasses

import jax
import numpy as np
import pytest

from tests.fixtures.generation import KINDS, SIZES
from xjax.core.errors import ConfigError
from xjax.core.mesh import DATA, LABEL, make_mesh
from xjax.core.mesh_config import MeshConfig
from xjax.data.load import load_corpus
from xjax.losses.bce import BCEConfig
from xjax.models.contract import Config
from xjax.models.neural.neural_model import NeuralModel
from xjax.models.neural.neural_plan import check_mesh, plan_neural
from xjax.networks.encoders.bert import BertConfig
from xjax.networks.encoders.encoder import NoEmbedding
from xjax.networks.heads.generation.hbgl import HBGLConfig
from xjax.networks.heads.generation.radar import RadarConfig
from xjax.networks.heads.label_attention import LabelAttentionConfig
from xjax.networks.heads.ova import OneVsAllConfig
from xjax.networks.pretrained.architecture import architecture_of
from xjax.networks.text_model import initial_biases, smoothed_priors
from xjax.run.fit import fit
from xjax.train.parameters import by_path


@pytest.mark.parametrize(
  ('head', 'at_priors'),
  [
    (HBGLConfig(), True),  # it gets the priors when it is built
    (RadarConfig(), False),
  ],
)
def test_biases_start_at_priors_if_the_head_wants_it(config, head, at_priors):
  space = load_corpus(config.data, config.seed).label_space
  n = space.n_trained
  model = NeuralModel(NoEmbedding(), BertConfig(), head=head)
  train = dataclasses.replace(config.train, loss=BCEConfig())
  config = dataclasses.replace(config, model=model, train=train)
  mesh = make_mesh(MeshConfig())
  architecture = architecture_of(SIZES | KINDS['bert'], 'sizes')
  plan = plan_neural(config, space, SIZES['vocab_size'], mesh, architecture)
  with jax.set_mesh(mesh):
    bias = by_path(plan.init(jax.random.key(0)).params)['head/bias'][:n]
  priors = smoothed_priors(space.train_counts[:n], space.n_train)
  expected = initial_biases(priors) if at_priors else np.zeros(n)
  np.testing.assert_allclose(bias, expected, rtol=1e-6)


def test_too_many_hidden_labels_leave_nothing(described_config, tmp_path):
  head = dataclasses.replace(described_config.model.head, hidden_labels=15)
  model = dataclasses.replace(described_config.model, head=head)
  config = dataclasses.replace(described_config, model=model)
  says = r'^model.head.hidden_labels=15: must be from 0 to \d+, the number of '
  with pytest.raises(ConfigError, match=says):
    fit(config, tmp_path / 'run')
  assert not (tmp_path / 'run').exists()


@pytest.mark.parametrize('count', [6, 5])
def test_rows_on_all_devices_divide_among_them(count):
  """Those of a head whose rows lie on the label axis alone need not."""
  devices = np.array(jax.local_devices()[:count])[:, None]
  mesh = jax.sharding.Mesh(devices, (DATA, LABEL))
  config = Config(model=NeuralModel(head=OneVsAllConfig()))
  config.train.batch_size = config.eval.batch_size = 60 * 7
  if count == 6:
    check_mesh(config, mesh)
  else:
    with pytest.raises(ConfigError, match=f'{count} devices, .* divide 1536'):
      check_mesh(config, mesh)
  config.model.head = LabelAttentionConfig()
  check_mesh(config, mesh)
