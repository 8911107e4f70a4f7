"""Runs with views: resumed, loaded, planned, and started from other runs."""

import copy
import dataclasses

import jax
import numpy as np
import pytest

from tests.fixtures.shrink import shrink
from tests.run.small_runs import assert_resumes
from xjax.configs import arxiv, quickstart
from xjax.core.types import PAD
from xjax.data.text.words import split_words
from xjax.models.contract import Config
from xjax.networks.views.hierarchy_views import NoViews
from xjax.run.fit import fit
from xjax.run.open_run import open_run
from xjax.train.checkpoint import read_params
from xjax.train.initial.descriptors import encoded_labels
from xjax.train.parameters import (
  VIEW_NAMES,
  by_path,
  from_paths,
)
from xjax.train.workdir import Workdir

pytestmark = pytest.mark.thorough

TEXTS = ['Puma sa funu mesi teba malu', '', 'Sena pe folo tulo 2002']


def config_with(steps=6, init_from='', views=True, **data) -> Config:
  config = copy.deepcopy(shrink(quickstart.get_config('hgclr')))
  data |= {'n_train': 40, 'n_labels': 30}
  config.data = dataclasses.replace(config.data, **data)
  config.model.views.segment = 6
  if not views:
    config.model.views = NoViews()
  when = {'steps': steps, 'checkpoint_every': 2, 'judge_every': 2}
  more = {'learning_rate': 0.01, 'init_from': str(init_from)}
  config.train = dataclasses.replace(config.train, **when, **more)
  return config


@pytest.fixture(scope='module')
def finished(tmp_path_factory):
  """The result of a run; copy its workdir before you change it."""
  return fit(config_with(), tmp_path_factory.mktemp('views') / 'run')


@pytest.fixture(scope='module')
def flat(tmp_path_factory):
  """The same without views."""
  config = config_with(views=False)
  return fit(config, tmp_path_factory.mktemp('flat') / 'run')


def saved(result, step=None):
  step = result.best_step if step is None else step
  return read_params(result.workdir / 'checkpoints', step)


def test_resuming_is_bitwise(finished, tmp_path):
  assert any(path.startswith('views/') for path in saved(finished))
  assert_resumes(config_with(), finished, tmp_path, 4)


def test_the_names_of_labels_and_concepts_are_read(finished):
  folder = Workdir.at(finished.workdir)
  words = folder.vocabulary()
  pieces = saved(finished)[VIEW_NAMES]
  labels = encoded_labels(folder.label_space())
  assert len(pieces) == len(labels) >= folder.label_space().n_trained
  for label, row in zip(labels, pieces):
    # All words are known, also those that no document has.
    known = [words.index[word] for word in split_words(label.name)][: len(row)]
    assert row.tolist() == known + [PAD] * (len(row) - len(known))


def test_a_loaded_run_gives_the_scores_of_a_model_without_views(finished, flat):
  model, plain = open_run(finished.workdir), open_run(flat.workdir)
  with_views = by_path(model.scorer.params)
  like = by_path(plain.scorer.params)
  assert like.keys() < with_views.keys()
  again = open_run(finished.workdir, finished.best_step)
  tagged = model.predict(TEXTS, k=5)
  assert again.predict(TEXTS, k=5) == tagged
  for path, leaf in like.items():
    leaf = np.asarray(with_views[path])
    like[path] = jax.device_put(leaf, like[path].sharding)
  plain.scorer.params = from_paths(plain.scorer.params, like)
  plain = dataclasses.replace(plain, calibration=model.calibration)
  assert plain.predict(TEXTS, k=5) == tagged


def test_a_pretrained_encoder_reads_the_pieces_of_names(devices, tmp_path):
  config = shrink(arxiv.get_config('hgclr'))
  with devices(1):
    result = fit(config, tmp_path / 'run')
  folder = Workdir.at(result.workdir)
  tokenizer, space = folder.subwords(), folder.label_space()
  row = saved(result)[VIEW_NAMES][0]
  ids = tokenizer.encode(space.labels[0].name)[1:-1][: len(row)]
  assert row[: len(ids)].tolist() == ids.tolist()
