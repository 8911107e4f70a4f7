"""Every kind of part learns 64 documents; staged systems beat the prior."""

import dataclasses

import pytest

from tests.commands.test_configs import CONFIGS, choices, cover, kinds
from tests.fixtures.shrink import shrink
from xjax.data.tokens_config import WordsConfig
from xjax.judge.judge import judge
from xjax.judge.make_predictions import popularity, predict
from xjax.models.matched.matched_model import MatchedModel
from xjax.models.neural.neural_model import NeuralModel
from xjax.models.neural.shortlists import LevelShortlist, RankedShortlist
from xjax.models.trees.joined_vectors import StageVectors
from xjax.models.trees.tree_model import TreeModel
from xjax.networks.encoders.encoder import PretrainedConfig
from xjax.networks.heads.adaptive import AdaptiveConfig
from xjax.networks.heads.cascade import CascadeConfig
from xjax.run.fit import fit
from xjax.run.named_configs import named_config
from xjax.run.open_run import open_run

pytestmark = pytest.mark.thorough

SIZES = {'dim': 48, 'units': 24, 'zone_units': 24, 'filters': 48, 'chunk': 64}
SIZES['mlp'] = (48,)
RATES = dict.fromkeys(
  ['dropout', 'attention_dropout', 'word_dropout', 'row_dropout'], 0.0
)


def roomy(config):
  """A config on 64 documents of the synthetic corpus, with what it needs."""
  small = shrink(config)
  tokens = small.data.tokens
  if isinstance(tokens, WordsConfig):
    tokens = dataclasses.replace(
      tokens, max_tokens=96, buckets=(96,), max_words=4000
    )
  parts = {}
  # A transformer that nobody trained takes more steps, and smaller ones.
  transformer = isinstance(small.model.encoder, PretrainedConfig)
  steps = 400 if transformer else 120
  # Labels are learnt through a root or clusters that start at 0.5.
  chained = isinstance(small.model.head, AdaptiveConfig | CascadeConfig)
  steps *= 2 if chained and transformer else 1
  for field in dataclasses.fields(small.model):
    part = getattr(small.model, field.name)
    have = {f.name for f in dataclasses.fields(part)}
    given = {k: v for k, v in {**SIZES, **RATES}.items() if k in have}
    if 'init_scale' in have:
      given['init_scale'] = 1.0
    if 'pooler' in have:
      given['pooler'] = False  # nobody trained this one either
    if 'hidden_labels' in have:
      given['hidden_labels'] = 0
    if isinstance(part, RankedShortlist):  # the model alone ranks all labels
      given |= {'size': 64, 'prior': 0.0}
    if isinstance(part, CascadeConfig):
      given |= {'dropout': (0.0,), 'hidden': (0,)}
    parts[field.name] = dataclasses.replace(part, **given)
  return dataclasses.replace(
    small,
    data=dataclasses.replace(
      small.data, n_train=64, n_dev=16, n_test=0, n_labels=40, tokens=tokens
    ),
    model=NeuralModel(**parts),
    train=dataclasses.replace(
      small.train,
      batch_size=32,
      accumulate=1,
      steps=steps,
      learning_rate=5e-3 if transformer else 1e-2,
      rates=(),
      warmup=0,
      clip_norm=5.0,
      log_every=100,
      checkpoint_every=steps,
      judge_every=steps,
    ),
  )


SHIPPED = {name: named_config(name) for name in CONFIGS}
# One config of each combination of kinds. Those that train level by level take
# long; one of the quickstart is below.
NEURAL = {
  kinds(config.model): name
  for name, config in SHIPPED.items()
  if isinstance(config.model, NeuralModel)
  and not isinstance(config.model.shortlist, LevelShortlist)
}
ROOMY = {name: roomy(SHIPPED[name]) for name in NEURAL.values()}
# Every kind of part, and every text and switch of them, is in one of these.
COVER = cover(
  {name: {*choices(config.model)} for name, config in ROOMY.items()},
  cost=lambda name: ROOMY[name].train.steps,
)


@pytest.mark.parametrize('name', COVER)
def test_learns_by_heart(name, tmp_path, devices):
  config = ROOMY[name]
  with devices(2):
    result = fit(config, tmp_path)
  model, split = open_run(tmp_path), result.corpus.split('train')
  predictions = predict(model, split, model.space, 16)
  metrics = judge(predictions, config.eval.criteria())
  assert metrics['xjax']['all']['RP@5'] > 0.97


def with_fewer_steps(config):
  """A config of the quickstart, whose model and stages train fewer steps."""
  match config.model:
    case (
      MatchedModel(matcher=stage) | TreeModel(vectors=StageVectors(stage=stage))
    ):
      model, train = stage.model, stage.train
    case model:
      train = config.train
  if isinstance(model.shortlist, LevelShortlist):
    model.shortlist.steps = (80,)
  train.steps = 60
  return config


# Systems of stages, with fewer steps than in the config: at most a minute of
# training on two CPU cores.
STAGED = 'attention_xml_levels', 'rerank', 'x_transformer', 'xr_transformer'


@pytest.mark.parametrize('system', STAGED)
def test_beats_the_popularity_prior_within_a_minute(system, tmp_path, devices):
  config = with_fewer_steps(named_config(f'quickstart:{system}'))
  with devices(1):
    result = fit(config, tmp_path)
  split = result.corpus.split('dev')
  prior = popularity(result.corpus.label_space, split, config.eval.depth)
  floor = judge(prior, config.eval.criteria())['xjax']['all']['RP@5']
  assert result.metrics['dev']['xjax']['all']['RP@5'] > floor + 0.2
