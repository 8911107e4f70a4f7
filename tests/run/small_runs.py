"""Configs of small neural runs, and checks that runs end the same."""

import dataclasses
import json
import shutil

import numpy as np
import orbax.checkpoint as ocp

from tests.fixtures.kills import assert_same_dev
from tests.fixtures.sparse_runs import RUNS, config_of
from xjax.core.types import PAD
from xjax.data.documents import Documents
from xjax.data.label_trees.clusters import ClusterTree
from xjax.data.label_trees.levels import LevelsConfig
from xjax.data.tokens_config import WordsConfig
from xjax.judge.predictions import Predictions
from xjax.models.neural.neural_model import NeuralModel
from xjax.networks.encoders.encoder import NoEncoder
from xjax.networks.encoders.layers import EmbeddingConfig
from xjax.networks.encoders.recurrent_cells import BiGRUConfig
from xjax.networks.heads.cascade import CascadeConfig
from xjax.networks.pooling import MeanConfig, SelfAttentionConfig
from xjax.run.fit import fit
from xjax.run.open_run import open_run
from xjax.train.neural_train import NeuralTrain
from xjax.train.saved_steps import intact_steps


def with_head(config, head, pooling=None, **train):
  """The config with a head, fields of training, and nothing slow to compile."""
  pooling = pooling or MeanConfig()
  parts = {'encoder': NoEncoder(), 'pooling': pooling, 'head': head}
  model = dataclasses.replace(config.model, **parts)
  train = dataclasses.replace(config.train, **train)
  return dataclasses.replace(config, model=model, train=train)


def cascade():
  """A config whose labels are in sixteen clusters, with dropout of clusters."""
  config = config_of(*RUNS['xr'])
  config.data.tokens = WordsConfig(max_tokens=16, buckets=(8, 16), min_count=1)
  config.model = NeuralModel(
    EmbeddingConfig(dim=8),
    BiGRUConfig(units=4),
    SelfAttentionConfig(),
    CascadeConfig(
      levels=LevelsConfig((16,), ClusterTree(arity=16, max_leaf=7)),
      kept=(8,),
      dropout=(0.5,),
      hidden=(0, 5),
    ),
  )
  config.train = NeuralTrain(
    batch_size=50,
    steps=6,
    checkpoint_every=2,
    judge_every=2,
    best_metric='all/RP@5',
  )
  return config


CLOCK_FIELDS = 'documents_per_second', 'seconds', 'peak_memory', 'device_memory'


def records(workdir):
  """The lines of metrics.jsonl, without what depends on the clock."""
  lines = (workdir / 'metrics.jsonl').read_text().splitlines()
  return [
    {name: v for name, v in row.items() if name not in CLOCK_FIELDS}
    for row in map(json.loads, lines)
  ]


def arrays(workdir, step):
  """All that a checkpoint holds of a state, by path."""
  found, handler = {}, ocp.StandardCheckpointHandler()
  for item in ('params', 'optimizer'):
    path = workdir / 'checkpoints' / str(step) / item
    like = {
      name: np.empty(leaf.shape, leaf.dtype)
      for name, leaf in handler.metadata(path).items()
    }
    found |= handler.restore(path, args=ocp.args.StandardRestore(like))
  return found


def assert_predicts_what_was_judged(result):
  """Checks the lists that the loaded run gives for dev."""
  path = result.paths['dev'] / 'predictions.npz'
  judged = Predictions.load(path).lists['all']
  documents = Documents.of_split(result.corpus.split('dev'))
  lists = open_run(result.workdir).lists(documents, judged.ids.shape[1])
  width = lists.ids.shape[1]  # of all labels, which may be fewer
  wanted = judged.scores[:, :width]
  np.testing.assert_allclose(lists.scores, wanted, rtol=1e-4, atol=1e-4)
  assert (judged.ids[:, width:] == PAD).all()


def assert_resumes(config, result, folder, kept):
  """Checks that a run that loses all steps after `kept` ends as it did.

  It ends bit for bit so, and predicts what was judged.
  """
  workdir = shutil.copytree(result.workdir, folder / 'resumed')
  steps = intact_steps(workdir / 'checkpoints')
  assert kept in steps and steps[-1] == result.steps > kept
  for step in steps:
    if step > kept:
      shutil.rmtree(workdir / 'checkpoints' / str(step))
  shutil.rmtree(workdir / 'eval')
  again = fit(config, workdir)
  assert (again.best_step, again.metrics) == (result.best_step, result.metrics)
  assert records(workdir) == records(result.workdir)
  assert_same_dev(again, result)
  assert_predicts_what_was_judged(again)
  ours, theirs = (arrays(x, result.steps) for x in (workdir, result.workdir))
  assert ours.keys() == theirs.keys()
  for name, array in theirs.items():
    assert ours[name].dtype == array.dtype, name
    np.testing.assert_array_equal(ours[name], array, err_msg=name)
