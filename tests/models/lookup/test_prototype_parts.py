"""Which parts prototypes have, and which settings and corpora give them."""

import dataclasses
import json

import numpy as np
import pytest

from xjax.core.errors import ConfigError, DataError
from xjax.data.config import (
  GivenFeaturesConfig,
  Norm,
  TextVectorsConfig,
  TfidfConfig,
)
from xjax.data.formats.jsonl import JsonlData
from xjax.data.formats.xc_features import XcFeaturesData
from xjax.models.config_check import check_config
from xjax.models.contract import Config
from xjax.models.lookup.prototypes import PrototypesModel
from xjax.models.shrink import shrink
from xjax.run.fit import fit
from xjax.run.open_run import open_run
from xjax.train.train_config import NoTrain

TEXTS = ['A fish in the sea', 'fish oil', 'olive oil', 'the sea']


def own_corpus(folder, labels, **options):
  """The first two texts have the labels 6 and 7, the others the label 6."""
  rows = [
    {'id': f'{i}', 'text': text, 'labels': ['7', '6'] if i < 2 else ['6']}
    for i, text in enumerate(TEXTS)
  ]
  for name, lines in {'train': rows, 'dev': rows, 'labels': labels}.items():
    text = ''.join(json.dumps(row) + '\n' for row in lines)
    (folder / f'{name}.jsonl').write_text(text)
  tokens = TfidfConfig(min_count=1)
  data = JsonlData(dir=str(folder), tokens=tokens, labels='all')
  return Config(data=data, model=PrototypesModel(**options), train=NoTrain())


LABELS = [
  {'id': '6', 'name': '1957'},
  {'id': '7'},
  {'id': '8', 'name': 'olive oil'},
  {'id': '9', 'name': '2003 !'},
]


def test_labels_that_are_words_are_their_own_names(tmp_path):
  labels = [{'id': '6'}, {'id': '7'}, {'id': 'olive oil'}]
  config = own_corpus(tmp_path, labels, centroids=False)
  predictor = open_run(fit(config, tmp_path / 'run').workdir)
  (first, *_) = predictor.predict(['some olive oil'], 3)[0]
  assert first.id == 'olive oil'


def test_labels_without_a_prototype_come_last(tmp_path):
  config = own_corpus(tmp_path, LABELS, names=False)
  predictor = open_run(fit(config, tmp_path / 'run').workdir)
  lists = predictor.lists(['nothing known', 'fish'], 4)
  ids = [[predictor.space.ids[x] for x in row] for row in lists.ids]
  assert [row[2:] for row in ids] == [['8', '9']] * 2
  assert (lists.scores[:, 2:] == -2).all() and (lists.scores[:, :2] >= 0).all()


@pytest.mark.parametrize('centroids', [False, True])
def test_names_without_a_letter_are_no_part(tmp_path, centroids):
  config = own_corpus(tmp_path, LABELS, centroids=centroids)
  predictor = open_run(fit(config, tmp_path / 'run').workdir)
  rows = predictor.scorer.prototypes.toarray()
  featurise = predictor.scorer.featuriser.featurise
  named = featurise(['olive oil']).toarray()[0]
  row_of = dict(zip(predictor.space.ids, rows, strict=True))
  np.testing.assert_allclose(row_of['8'], named, atol=1e-6)
  assert not row_of['9'].any()
  for id_, n in (('6', 4), ('7', 2)):
    total = (
      predictor.scorer.featuriser.featurise(TEXTS[:n]).toarray().sum(axis=0)
    )
    centroid = centroids * total / np.linalg.norm(total)
    np.testing.assert_allclose(row_of[id_], centroid, atol=1e-6)


def test_a_corpus_of_one_label(tmp_path):
  config = own_corpus(tmp_path, [{'id': '6', 'name': 'oil'}])
  config.data.labels = 'corpus'
  for name in ('train', 'dev'):
    path = tmp_path / f'{name}.jsonl'
    path.write_text(path.read_text().replace('"7", ', ''))
  predictor = open_run(fit(config, tmp_path / 'run').workdir)
  (labels,) = predictor.predict(['oil'])
  assert [label.id for label in labels] == ['6']


@pytest.mark.parametrize(
  ('labels', 'options', 'says'),
  [
    ([{'id': '6'}, {'id': '7', 'name': ' - '}], {}, 'no label has a name'),
    (LABELS, {'names': False}, 'there is nothing to learn'),
  ],
)
def test_labels_without_parts_are_an_error_that_leaves_nothing(
  tmp_path, labels, options, says
):
  config = own_corpus(tmp_path, labels, **options)
  if options:
    for name in ('train', 'dev'):
      row = {'id': '1', 'text': 'some words', 'labels': []}
      (tmp_path / f'{name}.jsonl').write_text(json.dumps(row) + '\n')
  with pytest.raises(DataError, match=says):
    fit(config, tmp_path / 'run')
  assert not (tmp_path / 'run').exists()


@pytest.mark.parametrize(
  ('data', 'options', 'says'),
  [
    (
      {},
      {'names': False, 'centroids': False},
      'config.model: names or centroids must be True',
    ),
    (
      {'tokens': TextVectorsConfig()},
      {},
      "config.data.tokens.folder='': give a pretrained encoder",
    ),
    (
      {'tokens': TextVectorsConfig(folder='x', max_tokens=2)},
      {},
      'config.data.tokens.max_tokens=2: must be at least 3',
    ),
  ],
)
def test_settings_that_do_not_fit_are_named(tmp_path, data, options, says):
  config = own_corpus(tmp_path, LABELS, **options)
  changed = dataclasses.replace(config.data, **data)
  with pytest.raises(ConfigError) as raised:
    fit(dataclasses.replace(config, data=changed), tmp_path / 'run')
  assert str(raised.value).startswith(says)


def test_sparse_features_have_no_names(tmp_path):
  rows = ['0 0:1 1:0.1', '1 1:1', '0,1 0:1 1:1', '2 2:1']
  for name in ('train', 'test'):
    (tmp_path / f'{name}.txt').write_text('\n'.join(['4 3 3', *rows]) + '\n')
  data = XcFeaturesData(dir=str(tmp_path), tokens=GivenFeaturesConfig())
  config = Config(data=data, model=PrototypesModel(), train=NoTrain())
  with pytest.raises(ConfigError, match='config.model.names=True: config.data'):
    check_config(config)
  with pytest.raises(ConfigError, match='norm=NONE: .*; set .*norm=L2'):
    check_config(config)
  config.data.tokens.norm = Norm.L2
  config.model.names = False
  result = fit(config, tmp_path / 'run')
  assert result.metrics['test']['xjax']['all']['P@1'] == 1
  predictor = open_run(result.workdir)
  lists = predictor.predict(result.corpus.split('test').documents, 3)
  assert [x.id for x in lists[3]][0] == '2'
  with pytest.raises(ConfigError, match='reads features, not words'):
    predictor.explain(['text'])


def test_shrunk_configs_run(tmp_path):
  for tokens in (TfidfConfig(), TextVectorsConfig()):
    config = Config(model=PrototypesModel(centroids=False), train=NoTrain())
    data = dataclasses.replace(config.data, tokens=tokens)
    config = shrink(dataclasses.replace(config, data=data))
    assert config.model.centroids and type(config.data.tokens) is type(tokens)
    fit(config, tmp_path / type(tokens).__name__)


def test_an_absent_encoder_is_an_error_that_leaves_nothing(tmp_path):
  config = own_corpus(tmp_path, LABELS)
  config.data.tokens = TextVectorsConfig(folder=str(tmp_path / 'absent'))
  with pytest.raises(DataError, match='neither a folder nor the name'):
    fit(config, tmp_path / 'run')
  assert not (tmp_path / 'run').exists()
