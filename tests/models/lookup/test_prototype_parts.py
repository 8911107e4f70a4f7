"""Which parts prototypes have, and which settings and corpora give them."""

import dataclasses

import numpy as np
import pytest

from tests.fixtures.shrink import shrink
from xjax.core.errors import ConfigError, DataError
from xjax.data.config import (
  GivenFeaturesConfig,
  Norm,
  TextVectorsConfig,
  TfidfConfig,
)
from xjax.data.formats.xc_features import XcFeaturesData
from xjax.models.config_check import check_config
from xjax.models.contract import Config
from xjax.models.lookup.prototypes import PrototypesModel
from xjax.run.fit import fit
from xjax.run.open_run import open_run
from xjax.train.train_config import NoTrain

# The first two texts have the labels 6 and 7, the others the label 6.
GOLD = ['7', '6'], ['7', '6'], ['6'], ['6']
TEXTS = ['A fish in the sea', 'fish oil', 'olive oil', 'the sea']


LABELS = [
  {'id': '6', 'name': '1957'},
  {'id': '7'},
  {'id': '8', 'name': 'olive oil'},
  {'id': '9', 'name': '2003 !'},
]


def test_labels_that_are_words_are_their_own_names(own_corpus, tmp_path):
  labels = [{'id': '6'}, {'id': '7'}, {'id': 'olive oil'}]
  config = own_corpus(PrototypesModel(centroids=False), labels, GOLD)
  predictor = open_run(fit(config, tmp_path / 'run').workdir)
  (first, *_) = predictor.predict(['some olive oil'], 3)[0]
  assert first.id == 'olive oil'


def test_labels_without_a_prototype_come_last(own_corpus, tmp_path):
  config = own_corpus(PrototypesModel(names=False), LABELS, GOLD)
  predictor = open_run(fit(config, tmp_path / 'run').workdir)
  lists = predictor.lists(['nothing known', 'fish'], 4)
  ids = [[predictor.space.ids[x] for x in row] for row in lists.ids]
  assert [row[2:] for row in ids] == [['8', '9']] * 2
  assert (lists.scores[:, 2:] == -2).all() and (lists.scores[:, :2] >= 0).all()


@pytest.mark.parametrize('centroids', [False, True])
def test_names_without_a_letter_are_no_part(own_corpus, tmp_path, centroids):
  config = own_corpus(PrototypesModel(centroids=centroids), LABELS, GOLD)
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


def test_a_corpus_of_one_label(own_corpus, tmp_path):
  config = own_corpus(PrototypesModel(), [{'id': '6', 'name': 'oil'}], GOLD)
  config.data.labels = 'corpus'
  for name in ('train', 'dev'):
    path = tmp_path / f'{name}.jsonl'
    path.write_text(path.read_text().replace('"7", ', ''))
  predictor = open_run(fit(config, tmp_path / 'run').workdir)
  (labels,) = predictor.predict(['oil'])
  assert [label.id for label in labels] == ['6']


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
def test_settings_that_do_not_fit_are_named(
  own_corpus, tmp_path, data, options, says
):
  config = own_corpus(PrototypesModel(**options), LABELS, GOLD)
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


def test_an_absent_encoder_is_an_error_that_leaves_nothing(
  own_corpus, tmp_path
):
  config = own_corpus(PrototypesModel(), LABELS, GOLD)
  config.data.tokens = TextVectorsConfig(folder=str(tmp_path / 'absent'))
  with pytest.raises(DataError, match='neither a folder nor the name'):
    fit(config, tmp_path / 'run')
  assert not (tmp_path / 'run').exists()
