"""Metrics of one's own, each a class in a file outside the library."""

import csv
import dataclasses
import json

import numpy as np
import pytest

from tests.extending.page import FILES, start
from tests.extending.systems import KS, predictions
from xjax.core.errors import ConfigError
from xjax.judge.criteria import Criteria
from xjax.judge.judge import judge
from xjax.judge.metrics.document_metrics import Precision
from xjax.judge.metrics.metric import DocumentMetric, LabelMetric
from xjax.judge.metrics.protocols import XJAX
from xjax.models.neural.neural_plan import check_best_metric

OWN = 'my_metrics', 'my_label_metrics'  # files of the page


@pytest.fixture(scope='module')
def folder(tmp_path_factory):
  """The folder that judging by the metrics of docs/extending.md has written."""
  path = tmp_path_factory.mktemp('judged')
  for name in OWN:
    (path / f'{name}.py').write_text(FILES[name])
  done = start(path, '-m', 'tests.extending.judge_process', path, *OWN)
  assert done.returncode == 0, done.stderr
  return path


@pytest.fixture(scope='module')
def told(folder):
  return json.loads((folder / 'told.json').read_text())


def reciprocal_rank(judged, k):
  values = []
  for ids, gold in zip(judged.lists['all'].ids, judged.gold, strict=True):
    places = [i + 1 for i in range(k) if ids[i] in gold]
    values += [1 / places[0] if places else 0] if len(gold) else []
  return np.mean(values)


def jaccard(judged, k):
  values = []
  for label in range(len(judged.labels)):
    listed = (judged.lists['all'].ids[:, :k] == label).any(1)
    golden = np.array([label in gold for gold in judged.gold])
    either = (listed | golden).sum()
    values.append((listed & golden).sum() / either if either else 0)
  return np.mean(values)


def test_they_are_judged_and_written(folder, told):
  judged = predictions()
  metrics = json.loads((folder / 'metrics.json').read_text())
  values, intervals = metrics['xjax']['all'], metrics['intervals']['xjax']
  for k in KS:
    assert values[f'MRR@{k}'] == pytest.approx(reciprocal_rank(judged, k))
    assert values[f'macro-Jaccard@{k}'] == pytest.approx(jaccard(judged, k))
    for name in (f'MRR@{k}', f'macro-Jaccard@{k}'):
      low, high = intervals['all'][name]
      assert low < values[name] < high
  rows = csv.reader((folder / 'metrics.csv').read_text().splitlines())
  assert {'MRR@3', 'macro-Jaccard@3'} <= {row[2] for row in rows}
  assert 'MRR@3' in told['table'] and 'macro-Jaccard@1' in told['full']
  # A document has a metric of documents, and none of labels.
  assert 'MRR@3' in told['document']
  assert 'macro-Jaccard@3' not in told['document']


def test_they_are_asked_for_by_name(told):
  assert told['kinds'] == ['MRR@k', 'macro-Jaccard@k']


def test_a_label_that_nothing_is_said_of_adds_nothing():
  class NeverPredicted(LabelMetric):
    name = 'never-predicted@k'
    protocols = ('another',)

    def over(self, labels):
      return (labels.predicted_L == 0).astype(labels.gold_L.dtype)

  another = dataclasses.replace(XJAX, name='another')
  with pytest.raises(ConfigError, match='NeverPredicted: never-predicted@k'):
    judge(predictions(), Criteria((3,), protocols=(another,)))


def test_two_metrics_of_one_name_are_refused():
  class Once(Precision):
    name = 'twice@k'
    protocols = ('a third',)

  class Again(Once):
    name = 'twice@k'

  third = dataclasses.replace(XJAX, name='a third')
  with pytest.raises(ConfigError, match='metrics are called twice@3: .*Once'):
    judge(predictions(), Criteria((3,), protocols=(third,)))
  assert Again.name not in XJAX.kinds


def test_a_metric_of_another_shape_is_named():
  class Flat(DocumentMetric):
    name = 'flat@k'
    protocols = ('a fourth',)

    def over(self, lists):
      return lists.hits_BJ.T

  fourth = dataclasses.replace(XJAX, name='a fourth')
  says = r'Flat.over returned an array of shape .*B, J'
  with pytest.raises(ValueError, match=says):
    judge(predictions(), Criteria((1, 3), protocols=(fourth,)))


def own_metric(module='mine', **fields):
  fields.setdefault('over', lambda self, lists: lists.hits_BJ > 0)
  return type('Own', (DocumentMetric,), {'__module__': module, **fields})


@pytest.mark.parametrize(
  ('fields', 'fault'),
  [
    (
      {},
      r"metric Own has no name; set it in the class, such as name = 'MRR@k'",
    ),
    ({'name': 'own@5'}, r"called 'own@5'; write @k in place of .*: own@k"),
    ({'name': 'own[a]@10'}, r'write @k in place of the number: own\[a\]@k'),
  ],
)
def test_a_metric_without_a_right_name_is_refused(fields, fault):
  with pytest.raises(TypeError, match=fault):
    own_metric(**fields)
  assert not {'', 'own@5', 'own[a]@10'} & set(XJAX.kinds)


@pytest.mark.filterwarnings('ignore:invalid value:RuntimeWarning')
@pytest.mark.parametrize('part', ['over', 'under'])
def test_a_metric_that_returns_nan_is_named(part):
  name = f'nan-{part}@k'
  nan = {part: lambda self, lists: lists.hits_BJ * np.nan}
  own_metric(name=name, protocols=(name,), **nan)
  protocol = dataclasses.replace(XJAX, name=name, printed=())
  judged = judge(predictions(), Criteria((3,), protocols=(protocol,)))
  metric = f'nan-{part}@3'
  assert judged[name]['all'][metric] is None
  assert judged['notes']['all'][metric] == 'Own returned NaN'


def test_a_best_metric_without_a_value_says_why():
  values = {'n_docs': 3, 'n_skipped': 0, 'P@1': 0.5, 'own@5': None}
  dev = {'xjax': {'all': values}, 'notes': {'all': {'own@5': 'it is NaN'}}}
  with pytest.raises(ConfigError) as error:
    check_best_metric('all/own@5', dev)
  assert str(error.value) == (
    'config.train.best_metric=all/own@5 has no value on dev (it is NaN); '
    'metrics with a value: all/P@1'
  )
