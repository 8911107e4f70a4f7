"""Trees on TF-IDF features joined with the vectors of an encoder."""

import shutil

import numpy as np
import pytest
from scipy import sparse

from tests.fixtures.kinds import KINDS
from xjax.core.errors import DataError
from xjax.data.documents import Documents
from xjax.data.text.words import Vocabulary
from xjax.models.trees.joined_vectors import join
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
