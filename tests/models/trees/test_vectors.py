"""Trees on TF-IDF features joined with the vectors of an encoder."""

import copy
import dataclasses
import shutil

import jax
import numpy as np
import pytest
from scipy import sparse

from tests.fixtures.kills import assert_same_dev, kill, kill_training
from tests.fixtures.sparse_runs import contents
from tests.models.test_config_check import broken
from xjax.core.errors import ConfigError, DataError, Preempted
from xjax.core.processes.lock import locked
from xjax.data.config import TfidfConfig
from xjax.data.documents import Documents
from xjax.data.label_trees.clusters import ClusterTree
from xjax.data.label_trees.levels_config import LevelsConfig
from xjax.data.load import cut_corpus
from xjax.data.text.words import Vocabulary
from xjax.losses.squared_hinge import SquaredHingeConfig
from xjax.models.config_check import check_config
from xjax.models.lookup.exact_match import ExactMatchModel
from xjax.models.neural.shortlists import LevelShortlist
from xjax.models.trees import tree_model
from xjax.models.trees.vectors import RunVectors, join
from xjax.run.fit import fit
from xjax.run.open_run import open_run
from xjax.train.run_record import RunClock, RunRecord
from xjax.train.workdir import Workdir

TEXTS = ['Puma sa funu mesi teba malu', '', 'Sena pe folo tulo 2002']


def test_a_vector_stands_after_the_sparse_features_of_its_document():
  rows = sparse.csr_array(np.float32([[0, 1, 0], [0, 0, 0]]))
  both = join(rows, np.float32([[3, 4], [0, 5]]))
  assert both.has_sorted_indices and both.indices.dtype == np.int32
  np.testing.assert_array_equal(
    both.toarray(), [[0, 1, 0, 3, 4], [0, 0, 0, 0, 5]]
  )


def test_features_are_tfidf_and_scaled_vectors_of_the_stage(joined):
  featuriser = open_run(joined.workdir).scorer.featuriser
  features = featuriser(Documents(TEXTS)).toarray()
  tfidf = featuriser.featurise(TEXTS).toarray()
  assert featuriser.n_features == tfidf.shape[1] + featuriser.vectors.dim
  np.testing.assert_array_equal(features[:, : tfidf.shape[1]], tfidf)
  norms = np.linalg.norm(features[:, tfidf.shape[1] :], axis=1)
  np.testing.assert_allclose(norms, 2.0, rtol=1e-6)
  stage = open_run(joined.workdir / 'stages' / 'encoder')
  expected = stage.scorer.vectors(Documents(TEXTS))
  got = features[:, tfidf.shape[1] :]
  length = np.linalg.norm(expected, axis=1, keepdims=True)
  np.testing.assert_allclose(got, 2 * expected / length, atol=1e-6)


def of_run(config, workdir):
  """A config that reads the vectors of another run instead of a stage's."""
  vectors = RunVectors(weight=2.0, workdir=str(workdir))
  return broken('model.vectors', vectors, config)


@pytest.fixture
def source(joined, tmp_path):
  """A copy of the run of the encoder."""
  encoder = joined.workdir / 'stages' / 'encoder'
  return shutil.copytree(encoder, tmp_path / 'source')


def test_the_run_of_another_workdir_is_copied(
  joined, joined_config, source, tmp_path
):
  result = fit(of_run(joined_config, source), tmp_path / 'run')
  assert result.metrics == joined.metrics
  shutil.rmtree(source)
  again = open_run(tmp_path / 'run').predict(TEXTS, k=3)
  assert again == open_run(joined.workdir).predict(TEXTS, k=3)


def fresh(config):
  """Returns a copy, because a killed run has changed its config."""
  return copy.deepcopy(config)


def test_a_stage_killed_and_resumed_gives_the_same_model(
  joined, joined_config, tmp_path, monkeypatch
):
  with monkeypatch.context() as patch, pytest.raises(Preempted):
    kill_training(patch)
    fit(fresh(joined_config), tmp_path / 'run')
  fit(joined_config, tmp_path / 'run')
  assert contents(tmp_path / 'run' / 'model') == contents(
    joined.workdir / 'model'
  )


@pytest.fixture(
  scope='module', params=[True, False], ids=['labels', 'clusters']
)
def by_levels(request, devices, joined_config, tmp_path_factory):
  """The config and result of a tree on vectors that are learnt by levels.

  The encoder learns one level and the labels, or two levels of clusters.
  """
  config = fresh(joined_config)
  sizes, steps = ((16,), (4,)) if request.param else ((4, 16), (3, 4))
  levels = LevelsConfig(sizes, ClusterTree(arity=4, max_leaf=7))
  vectors = config.model.vectors
  vectors.labels, vectors.stage.train.loss = request.param, SquaredHingeConfig()
  vectors.stage.model.shortlist = LevelShortlist(
    levels, steps, kept=6, counted=True, bootstrap=True
  )
  with devices(1):
    folder = tmp_path_factory.mktemp('levels') / 'run'
    return config, fit(fresh(config), folder)


@pytest.mark.thorough
@pytest.mark.parametrize('place', ['loop', 'tree'])
def test_an_encoder_by_levels_resumes_where_it_was_killed(
  by_levels, place, tmp_path, monkeypatch
):
  config, whole = by_levels
  with monkeypatch.context() as patch, pytest.raises(Preempted):
    if place == 'loop':
      kill_training(patch, 1)
    else:
      kill(patch, tree_model, 'fit_tree')
    fit(fresh(config), tmp_path / 'run')
  fit(fresh(config), tmp_path / 'run')
  result = fit(fresh(config), tmp_path / 'run')  # it is finished
  assert result.metrics == whole.metrics
  assert_same_dev(result, whole)
  assert contents(result.workdir / 'model') == contents(whole.workdir / 'model')
  ours, theirs = (
    open_run(x.workdir / 'stages' / 'encoder').scorer.params
    for x in (result, whole)
  )
  jax.tree.map(np.testing.assert_array_equal, ours, theirs)


@pytest.mark.thorough
def test_an_encoder_of_clusters_alone_has_no_label_rows(by_levels):
  config, result = by_levels
  stage = open_run(result.workdir / 'stages' / 'encoder')
  labels = config.model.vectors.labels
  assert stage.n_labels == (
    result.corpus.label_space.n_trained if labels else 16
  )


@pytest.mark.parametrize('labels', [True, False])
def test_a_fault_of_the_encoder_is_found_before_the_first_write(
  joined_config, labels, tmp_path
):
  config = fresh(joined_config)
  config.model.vectors.labels = labels
  levels = LevelsConfig((4, 16), ClusterTree(arity=4, max_leaf=7))
  stage = config.model.vectors.stage
  stage.model.shortlist = LevelShortlist(levels, (3, 4), kept=1)
  path = r'config\.model\.vectors\.stage\.'
  with pytest.raises(ConfigError, match=path + r'model\.shortlist\.kept=1'):
    fit(config, tmp_path / 'run')
  levels.sizes, stage.model.shortlist.steps = (2,), (4,)
  message = path + r'model\.shortlist\.levels\.sizes=\(2,\): a tree cannot be'
  with pytest.raises(ConfigError, match=message):
    fit(config, tmp_path / 'run')
  stage.zones = ('no_such_zone',)
  with pytest.raises(ConfigError, match=path + 'zones=.*no training document'):
    fit(config, tmp_path / 'run')
  assert not (tmp_path / 'run').exists()


def test_a_stage_reads_only_its_zones(joined_config, tmp_path):
  config = fresh(joined_config)
  config.model.vectors.stage.zones = ('title',)
  result = fit(config, tmp_path)
  stage = open_run(tmp_path / 'stages' / 'encoder')
  split = result.corpus.splits['train']
  titles = [document.zones['title'] for document in split.documents]
  wanted = Vocabulary.fit(titles, config.model.vectors.stage.tokens)
  reader = stage.scorer.reader
  assert reader.vocab.digest == wanted.digest
  dev = result.corpus.splits['dev']
  documents = [*dev.documents]
  body = {'body': documents[0].zones['body']}  # all of a document without title
  documents[0] = dataclasses.replace(documents[0], zones=body)
  dev = dataclasses.replace(dev, documents=documents, digest='changed')
  splits = {'train': split, 'dev': dev}
  cut = cut_corpus(
    dataclasses.replace(result.corpus, splits=splits), ('title',)
  )
  trained = reader.batches(Documents.of_split(cut.splits['dev']))
  used = reader.batches(Documents(documents))
  for ours, theirs in zip(trained, used, strict=True):
    np.testing.assert_array_equal(ours.tokens_BT, theirs.tokens_BT)


@pytest.mark.thorough
def test_a_stage_does_not_change_after_the_run_has_used_it(
  joined_config, tmp_path
):
  config = fresh(joined_config)
  first = fit(config, tmp_path)
  config.model.vectors.stage.train.steps = 6
  message = r'config\.model\.vectors\.stage\.train\.steps: 4 -> 6'
  with pytest.raises(ConfigError, match=message):
    fit(config, tmp_path)
  config.model.vectors.stage.train.steps = 4
  assert fit(config, tmp_path).metrics == first.metrics


def test_a_stage_that_changed_is_an_error(joined, joined_config, tmp_path):
  shutil.copytree(joined.workdir, tmp_path / 'run')
  path = tmp_path / 'run' / 'stages' / 'encoder' / 'digests.json'
  path.write_text(path.read_text() + ' ')
  for start in (open_run, lambda folder: fit(joined_config, folder)):
    with pytest.raises(DataError, match='stages/encoder/digests.json'):
      start(tmp_path / 'run')


def test_a_run_with_a_stage_resumes_on_other_hardware(
  joined, joined_config, tmp_path
):
  shutil.copytree(joined.workdir, tmp_path / 'run')
  data = dataclasses.replace(joined_config.data, workers=2)
  other = dataclasses.replace(joined_config, data=data)
  for config in (other, joined_config):
    assert fit(config, tmp_path / 'run').metrics == joined.metrics
  open_run(tmp_path / 'run')


def test_the_vectors_of_an_unfinished_run_are_not_used(
  joined_config, source, tmp_path
):
  config = of_run(joined_config, source)
  RunClock(Workdir.at(source)).save(RunRecord())
  with pytest.raises(ConfigError, match=f'{source} is not finished'):
    fit(config, tmp_path / 'run')
  (source / 'run.json').unlink()
  with locked(source), pytest.raises(ConfigError, match='wait until it ends'):
    fit(config, tmp_path / 'run')
  assert not (tmp_path / 'run').exists()


def test_faults_of_a_stage_have_the_path_of_the_stage(joined_config):
  config = fresh(joined_config)
  config.model.vectors.stage.train.accumulate = 7
  config.model.vectors.stage.zones = ('title',)
  config.model.vectors.stage.tokens = TfidfConfig()
  with pytest.raises(ConfigError) as error:
    check_config(config)
  stage = 'config.model.vectors.stage'
  message = str(error.value)
  assert f'{stage}.train.accumulate=7: must divide {stage}.train.b' in message
  assert f'\n{stage}.tokens=TfidfConfig(...): ' in f'\n{message}'
  assert 'stage.model.vectors' not in message


def test_a_stage_of_vectors_must_have_an_encoder(joined_config):
  config = fresh(joined_config)
  config.model.vectors.stage.model = ExactMatchModel()
  with pytest.raises(ConfigError, match='must be NeuralModel'):
    check_config(config)


@pytest.mark.parametrize('workdir', ['', 'missing'])
def test_a_missing_run_is_an_error(joined_config, tmp_path, workdir):
  config = of_run(joined_config, workdir and tmp_path / workdir)
  with pytest.raises(ConfigError, match='config.model.vectors.workdir'):
    fit(config, tmp_path / 'run')
  assert not (tmp_path / 'run' / 'config.json').exists()
