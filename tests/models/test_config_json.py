import dataclasses
import json

import pytest

from tests.fixtures.kinds import KINDS
from xjax.core.config_part import ConfigPart, kinds
from xjax.core.errors import ConfigError, DataError
from xjax.core.mesh_config import MeshConfig
from xjax.data.formats.htc import HtcData
from xjax.data.formats.jsonl import JsonlData
from xjax.data.formats.xc_features import XcFeaturesData
from xjax.data.tokens_config import (
  GivenFeaturesConfig,
  Norm,
  OnError,
  WordsConfig,
)
from xjax.judge.calibration import Method
from xjax.losses.focal import FocalConfig
from xjax.losses.label_weights import ClassBalancedWeights
from xjax.losses.softmax import SoftmaxConfig
from xjax.models.config_json import diff, from_json, to_json
from xjax.models.contract import Config, load_config
from xjax.models.eval_config import EvalConfig
from xjax.models.neural.neural_model import NeuralModel
from xjax.networks.heads.ova import OneVsAllConfig
from xjax.networks.pooling import MeanConfig
from xjax.networks.rows.storage import Storage
from xjax.networks.rows.update import FusedAdagrad
from xjax.train.neural_train import Dtype, NeuralTrain, Schedule
from xjax.train.optimizer_config import AdamW, SWAConfig


def rich():
  return Config(
    seed=3,
    data=JsonlData(
      dir='/d',
      zones=('title', 'body'),
      on_error=OnError.SKIP,
      tokens=WordsConfig(max_tokens=32, buckets=(8, 32)),
    ),
    train=NeuralTrain(
      learning_rate=0.1 + 0.2,
      schedule=Schedule.COSINE,
      optimizer=AdamW(weight_decay=0.1),
      compute_dtype=Dtype.BFLOAT16,
      rates=('encoder/*=0.1', 'pooling/*=0.5'),
      freeze=('embedding/*',),
      loss=FocalConfig(gamma=1.5),
      label_weights=ClassBalancedWeights(beta=0.99),
      average=SWAConfig(start=500, every=100),
    ),
    eval=EvalConfig(ks=(1, 5), calibration=Method.PLATT),
    mesh=MeshConfig(data=2, label=4),
  )


ROWS = Config(
  model=NeuralModel(
    pooling=MeanConfig(), head=OneVsAllConfig(storage=Storage.COMPENSATED)
  ),
  train=NeuralTrain(rows=FusedAdagrad(eps=1e-6), loss=SoftmaxConfig()),
)
CONFIGS = {
  'rich': rich(),
  'taxonomy': Config(data=HtcData(dir='/d', taxonomy='my.taxonomy')),
  'rows': ROWS,
  'features': Config(data=XcFeaturesData(tokens=GivenFeaturesConfig(Norm.L2))),
  **{kind: make(['a', 'b@5']) for kind, make in KINDS.items()},
}


@pytest.mark.parametrize('config', CONFIGS.values(), ids=CONFIGS)
def test_round_trip_through_a_file(tmp_path, config):
  path = tmp_path / 'config.json'
  path.write_text(json.dumps(to_json(config)))
  again = load_config(path)
  assert again == config
  assert type(again.data) is type(config.data)
  assert diff(config, again) == []


def test_kinds_stand_in_the_json():
  written = to_json(rich())
  assert written['data']['tokens']['kind'] == 'WordsConfig'
  assert written['data']['on_error'] == 'skip'
  average = {'kind': 'SWAConfig', 'start': 500, 'every': 100}
  assert written['train']['average'] == average
  assert 'kind' not in written['mesh']


def test_absent_fields_take_their_defaults():
  assert from_json({'seed': 4}, Config) == Config(seed=4)


NEURAL, TRAIN = {'kind': 'NeuralModel'}, {'kind': 'NeuralTrain'}


@pytest.mark.parametrize(
  'value, says',
  [
    ({'sed': 1}, "'sed'"),
    ({'train': TRAIN | {'stps': 1}}, "'train.stps'"),
    ({'data': {'kind': 'cvs'}}, 'data: unknown kind'),
    ({'data': {'dir': 'x'}}, 'data: has no "kind", .* \'JsonlData\', '),
    ({'model': NEURAL | {'head': {'chunk': 4}}}, 'model.head: has no "kind"'),
    ({'seed': '1'}, 'seed: expected'),
    ({'train': TRAIN | {'schedule': 'square'}}, "'constant', 'linear', 'cos"),
    ({'eval': {'ks': [1, 'a']}}, 'eval.ks'),
    ({'mesh': 3}, 'mesh: expected an object'),
    ([], 'config: expected an object'),
  ],
)
def test_wrong_json_is_named(value, says):
  with pytest.raises(ConfigError, match=says):
    from_json(value, Config)


@pytest.mark.parametrize(
  ('text', 'says'),
  [
    ('[' * 100_000, 'nested too deeply'),
    ('{"eval": {"recall": Infinity}}', 'not JSON: Infinity'),
    ('{"eval": {"recall": 1e999}}', 'config.eval.recall=inf: must be above 0'),
    ('{"eval": {"depth": 0}}', 'config.eval.depth=0: must be at least 1'),
    ('{"data": {"kind": ["JsonlData"]}}', "data: unknown kind \\['JsonlData'"),
    ('{"seed": 18446744073709551616}', 'config.seed=.* from 0 to'),
    ('{"seed": ' + '9' * 5000 + '}', 'a number is too long'),
  ],
)
def test_a_config_that_no_run_wrote_is_one_error(tmp_path, text, says):
  path = tmp_path / 'config.json'
  path.write_text(text)
  with pytest.raises(DataError, match=f'config.json: cannot .*{says}'):
    load_config(path)


def test_diff_names_paths_and_what_may_change():
  old = Config()
  new = dataclasses.replace(
    old,
    seed=1,
    data=dataclasses.replace(old.data, dir='/x'),
    train=dataclasses.replace(old.train, steps=7, batch_size=8),
    mesh=MeshConfig(data=1, label=2),
  )
  found = {d.path: (d.old, d.new, d.may_change) for d in diff(old, new)}
  assert found == {
    'seed': (0, 1, False),
    'data.dir': ('', '/x', True),
    'train.batch_size': (64, 8, False),
    'train.steps': (1000, 7, True),
    'mesh.data': (-1, 1, True),
    'mesh.label': (1, 2, True),
  }
  assert str(diff(old, new)[0]) == 'seed: 0 -> 1'
  others = diff(old, Config(data=JsonlData()))
  assert others[0].path == 'data.kind' and not others[0].may_change
  assert 'data.n_train' in [d.path for d in others]


def test_two_kinds_of_one_name_are_refused():
  class Twice(ConfigPart, abstract=True):
    pass

  for module in ('mine', 'yours'):
    type('Same', (Twice,), {'__module__': module})
  says = 'called Same, in the modules mine and yours'
  with pytest.raises(ConfigError, match=says):
    kinds(Twice)
