"""Labels added to a run with frozen words, weighted words, on any mesh."""

import dataclasses
import json
import pickle
import shutil

import jax
import numpy as np
import pytest

from tests.fixtures.dense_lists import all_scores as scores
import xjax
from xjax.core.errors import ConfigError, DataError
from xjax.core.mesh import LABEL
from xjax.core.mesh_config import LABEL_MULTIPLE, MeshConfig
from xjax.data.load import load_corpus
from xjax.data.schema import Label
from xjax.run.open_run import open_run
from xjax.train.parameters import DESCRIPTORS, by_path


@pytest.fixture(scope='module')
def predictor(described):
  return open_run(described.workdir)


@pytest.fixture(scope='module')
def split(described_config):
  corpus = load_corpus(described_config.data, described_config.seed)
  return corpus.split('dev')


def namesakes(predictor, at):
  """Labels named as those at some places, under other ids."""
  labels = [predictor.space.labels[i] for i in at]
  return [
    dataclasses.replace(label, id=f'new-{place}')
    for place, label in enumerate(labels)
  ]


@pytest.fixture(scope='module')
def before(predictor, split):
  return scores(predictor, split)


@pytest.mark.thorough
def test_scored_as_the_held_out_label_of_that_name(predictor, split, before):
  """In the order given; the scores of all others stay."""
  space = predictor.space
  at = space.held_out[::-1]
  assert len(at) == 2
  more = predictor.with_labels(namesakes(predictor, at))
  assert more.space.ids == (*space.ids, 'new-0', 'new-1')
  after = scores(more, split)
  assert after.shape == (len(split), len(space) + 2)
  np.testing.assert_allclose(after[:, -2:], before[:, at], atol=1e-6)
  np.testing.assert_allclose(after[:, :-2], before, atol=1e-6)
  assert np.abs(after[:, -2] - after[:, -1]).min() > 1e-3
  np.testing.assert_array_equal(scores(predictor, split), before)


def test_a_namesake_of_a_seen_label_has_no_row_of_its_own(
  predictor, split, before
):
  params = by_path(predictor.scorer.params)
  seen = np.flatnonzero(params['head/seen'])
  found = scores(predictor.with_labels(namesakes(predictor, seen)), split)
  added = found[:, before.shape[1] :]
  assert (np.abs(added - before[:, seen]).max(axis=0) > 1e-3).all()


def test_more_than_the_padding_has_room_for(predictor, split, before):
  held, m = predictor.space.held_out, LABEL_MULTIPLE
  at = np.resize(held, 2 * m - 16)  # 16 labels and these: to the last row
  for count, rows in ((m - 16, m), (m - 15, 2 * m)):
    more = predictor.with_labels(namesakes(predictor, at[:count]))
    params = by_path(more.scorer.params)
    assert params[DESCRIPTORS].shape == (rows, 8)
    found = scores(more, split)
    np.testing.assert_allclose(found[:, :16], before, atol=1e-6)
    np.testing.assert_allclose(found[:, 16:], before[:, at[:count]], atol=1e-6)


def test_on_another_mesh(all_devices, described, tmp_path, split, before):
  folder = shutil.copytree(described.workdir, tmp_path / 'run')
  path = folder / 'config.json'
  config = json.loads(path.read_text())
  config['mesh'] = {'data': 2, 'label': 4}
  path.write_text(json.dumps(config))
  predictor = open_run(folder)
  assert predictor.config.mesh == MeshConfig(data=2, label=4)
  at = np.resize(predictor.space.held_out, 113)
  more = predictor.with_labels(namesakes(predictor, at))
  descriptors = by_path(more.scorer.params)[DESCRIPTORS]
  assert descriptors.sharding.spec[0] == LABEL
  shapes = {x.data.shape for x in descriptors.addressable_shards}
  assert shapes == {(LABEL_MULTIPLE // 4, 8)}
  assert len(descriptors.sharding.device_set) == jax.device_count()
  found = scores(more, split)
  np.testing.assert_allclose(found[:, :16], before, atol=1e-5)
  np.testing.assert_allclose(found[:, 16:], found[:, at], atol=1e-6)


def test_labels_of_unknown_words_are_refused_by_name(predictor):
  known = predictor.space.labels[3].name
  new = [Label('a', 'qqqq'), Label('b', known), Label('c', 'wwww Ärger')]
  says = r"no vector for any word of these labels: 'qqqq', 'wwww \\xc4rger'; "
  with pytest.raises(DataError, match=says):
    predictor.with_labels(new)
  # An unknown word beside known ones does not matter.
  more = predictor.with_labels([Label('b', f'qqqq {known}'), Label('c', known)])
  rows = np.asarray(by_path(more.scorer.params)[DESCRIPTORS])
  np.testing.assert_array_equal(rows[16], rows[17])


def test_added_labels_are_pickled_but_not_saved(described, tmp_path):
  model = xjax.load(described.workdir).with_labels([Label('new', 'nipa')])
  wanted = model.predict('nipa', k=len(model.labels))
  assert 'new' in [label.id for label in wanted[0]]
  unpickled = pickle.loads(pickle.dumps(model))
  assert unpickled.predict('nipa', k=len(model.labels)) == wanted
  with pytest.raises(ConfigError, match='with_labels has added are not saved'):
    model.save(tmp_path / 'saved')
