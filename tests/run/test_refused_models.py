"""Models that do not suit the labels are refused before the first write."""

import dataclasses

import numpy as np
import pytest

from tests.fixtures.shrink import shrink
from xjax.configs import quickstart
from xjax.core.errors import ConfigError
from xjax.data.schema import Label, LabelSpace
from xjax.models.neural.neural_checks import check_hierarchy
from xjax.run.fit import fit
from xjax.train.workdir import Workdir


@pytest.mark.parametrize(
  ('system', 'path', 'value', 'says'),
  [
    ('hgclr', 'views.heads', 7, 'must divide'),
    ('hgclr', 'views.segment', 1, 'must be at least .* path down to'),
    ('radar', 'head.heads', 7, 'must divide'),
    ('hbgl', 'head.pretraining.segment', 1, 'must be at least .* down to'),
  ],
)
def test_a_wrong_size_leaves_no_config(system, path, value, says, tmp_path):
  config = shrink(quickstart.get_config(system))
  config.train = dataclasses.replace(config.train, rates=(), layer_decay=1.0)
  *parts, name = path.split('.')
  holder = config.model
  for part in parts:
    holder = getattr(holder, part)
  setattr(holder, name, value)
  with pytest.raises(ConfigError, match=f'config.model.{path}={value}: {says}'):
    fit(config, tmp_path)
  workdir = Workdir.at(tmp_path)
  assert not workdir.config.exists() and not workdir.corpus.exists()


def model_of(system):
  return shrink(quickstart.get_config(system)).model


def space_of(labels, concepts=()):
  """Makes a label space; `'ab'` is a label a with the parent b."""
  labels, concepts = (
    [Label(x[0], x[0], parents=tuple(x[1:])) for x in part]
    for part in (labels, concepts)
  )
  n = len(labels)
  return LabelSpace(labels, np.ones(n, int), 5, n, concepts=concepts)


@pytest.mark.parametrize('system', ['hbgl', 'radar', 'hgclr', 'graph'])
def test_parents_of_concepts_are_no_parents_of_labels(system):
  model = model_of(system)
  check_hierarchy(model, space_of(['ax', 'b'], ['x']))
  with pytest.raises(ConfigError, match='no label that the model scores has a'):
    check_hierarchy(model, space_of(['a', 'b'], ['x', 'yx']))


def test_only_a_graph_reads_children_that_are_concepts():
  space = space_of(['a', 'b'], ['ya'])
  check_hierarchy(model_of('graph'), space)
  with pytest.raises(ConfigError, match='no label that the model scores has a'):
    check_hierarchy(model_of('radar'), space)
