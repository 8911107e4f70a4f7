"""Trees on TF-IDF features joined with the vectors of an encoder."""

import shutil

import jax
import numpy as np
import pytest
from scipy import sparse

from tests.fixtures.kills import assert_same_dev, kill, kill_training
from tests.fixtures.kinds import KINDS
from tests.fixtures.sparse_runs import contents
from tests.models.test_config_check import broken
from xjax.core.errors import ConfigError, DataError, Preempted
from xjax.data.documents import Documents
from xjax.data.label_trees.clusters import ClusterTree
from xjax.data.label_trees.levels_config import LevelsConfig
from xjax.data.text.words import Vocabulary
from xjax.losses.squared_hinge import SquaredHingeConfig
from xjax.models.neural.shortlists import LevelShortlist
from xjax.models.trees import sparse_model
from xjax.models.trees.vectors import RunVectors, join
from xjax.run.fit import fit
from xjax.run.open_run import open_run

TEXTS = ['Puma sa funu mesi teba malu', '', 'Sena pe folo tulo 2002']
STAGE = r'config\.model\.vectors\.stage\.'


def joined_config():
  return KINDS['joined']([])


@pytest.fixture(scope='module')
def joined(fitted):
  return fitted('joined')


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
  n = tfidf.shape[1]
  assert featuriser.n_features == features.shape[1] > n
  np.testing.assert_array_equal(features[:, :n], tfidf)
  stage = open_run(joined.workdir / 'stages' / 'encoder')
  expected = stage.scorer.vectors(Documents(TEXTS))
  length = np.linalg.norm(expected, axis=1, keepdims=True)
  np.testing.assert_allclose(features[:, n:], 2 * expected / length, atol=1e-6)


def of_run(workdir):
  """A config that reads the vectors of another run instead of a stage's."""
  vectors = RunVectors(weight=2.0, workdir=str(workdir))
  return broken('model.vectors', vectors, joined_config())


@pytest.fixture
def source(joined, tmp_path):
  """A copy of the run of the encoder."""
  encoder = joined.workdir / 'stages' / 'encoder'
  return shutil.copytree(encoder, tmp_path / 'source')


def test_the_run_of_another_workdir_is_copied(joined, source, tmp_path):
  result = fit(of_run(source), tmp_path / 'run')
  assert result.metrics == joined.metrics
  shutil.rmtree(source)
  again = open_run(tmp_path / 'run').predict(TEXTS, k=3)
  assert again == open_run(joined.workdir).predict(TEXTS, k=3)


@pytest.mark.thorough
@pytest.mark.parametrize(('labels', 'place'), [(True, 'tree'), (False, 'loop')])
def test_an_encoder_by_levels_resumes_where_it_was_killed(
  labels, place, fit_once, tmp_path, monkeypatch
):
  """The encoder learns one level and the labels, or two levels of clusters."""

  def config():
    whole = joined_config()
    sizes, steps = ((16,), (4,)) if labels else ((4, 16), (3, 4))
    levels = LevelsConfig(sizes, ClusterTree(arity=4, max_leaf=7))
    vectors = whole.model.vectors
    vectors.labels, vectors.stage.train.loss = labels, SquaredHingeConfig()
    vectors.stage.model.shortlist = LevelShortlist(
      levels, steps, kept=6, counted=True, bootstrap=True
    )
    return whole

  whole = fit_once(f'joined_{labels}', config())
  with monkeypatch.context() as patch, pytest.raises(Preempted):
    if place == 'loop':
      kill_training(patch, 1)
    else:
      kill(patch, sparse_model, 'fit_tree')
    fit(config(), tmp_path / 'run')
  result = fit(config(), tmp_path / 'run')
  assert_same_dev(result, whole)
  assert contents(result.workdir / 'model') == contents(whole.workdir / 'model')
  ours, theirs = (
    open_run(x.workdir / 'stages' / 'encoder') for x in (result, whole)
  )
  jax.tree.map(
    np.testing.assert_array_equal, ours.scorer.params, theirs.scorer.params
  )
  n_labels = whole.corpus.label_space.n_trained if labels else 6
  assert ours.n_labels == n_labels


@pytest.mark.parametrize('labels', [True, False])
def test_a_fault_of_the_encoder_is_found_before_the_first_write(
  labels, tmp_path
):
  config = joined_config()
  config.model.vectors.labels = labels
  levels = LevelsConfig((4, 16), ClusterTree(arity=4, max_leaf=7))
  stage = config.model.vectors.stage
  stage.model.shortlist = LevelShortlist(levels, (3, 4), kept=1)
  with pytest.raises(ConfigError, match=STAGE + r'model\.shortlist\.kept=1'):
    fit(config, tmp_path / 'run')
  stage.zones = ('no_such_zone',)
  with pytest.raises(ConfigError, match=STAGE + 'zones=.*no training document'):
    fit(config, tmp_path / 'run')
  assert not (tmp_path / 'run').exists()


@pytest.mark.thorough
def test_a_stage_reads_only_its_zones(tmp_path):
  config = joined_config()
  config.model.vectors.stage.zones = ('title',)
  result = fit(config, tmp_path)
  reader = open_run(tmp_path / 'stages' / 'encoder').scorer.reader
  documents = result.corpus.splits['train'].documents
  titles = [document.zones['title'] for document in documents]
  wanted = Vocabulary.fit(titles, config.model.vectors.stage.tokens)
  assert reader.vocab.digest == wanted.digest


def test_a_stage_that_changed_is_an_error(joined, tmp_path):
  shutil.copytree(joined.workdir, tmp_path / 'run')
  path = tmp_path / 'run' / 'stages' / 'encoder' / 'digests.json'
  path.write_text(path.read_text() + ' ')
  for start in (open_run, lambda folder: fit(joined_config(), folder)):
    with pytest.raises(DataError, match='stages/encoder/digests.json'):
      start(tmp_path / 'run')
