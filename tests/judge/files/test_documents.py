"""Documents of predictions and of gold, by id or by position."""

import numpy as np
import pytest
from scipy import sparse

from tests.fixtures.xc_writers import write_pairs, write_xc, write_xc_scores
from tests.judge.files.given import given, read, refused
from tests.judge.files.test_matching import by_id, scored_lists
from xjax.core.errors import DataError
from xjax.core.types import Ragged
from xjax.data.formats.xc_files import XcFile
from xjax.judge.files.judged import read_judged


def test_documents_in_another_order_are_matched_by_id(files):
  scored_lists(files['scores'], ('law',), ('tax',), ('sea',))
  by_id(files['gold'], ('law',), ('tax', 'sea'), ('sea',))
  asked = given(files, 'gold')
  straight, _ = read_judged(asked)
  for name in ('scores', 'gold'):
    lines = files[name].read_text().splitlines(keepends=True)
    files[name].write_text(''.join(lines[::-1]))
    found, _ = read_judged(asked)
    assert found.doc_ids[0] == 'd2' and found.labels == straight.labels
    place = found.doc_ids.index('d1')
    assert found.gold[place].tolist() == straight.gold[1].tolist()
    assert found.gold[0].tolist() == straight.gold[2].tolist()
  write_pairs(files['filter'], np.array([[0, 1]]))
  files['labels'].write_text('law\ntax\nsea\n')
  by_id(files['gold'], ('law',), ('tax', 'sea'), ('sea',))
  message = refused(files, 'gold', 'filter', 'labels')
  assert message == (
    'filter: has row numbers, but the documents of scores are in another order '
    'than those of gold; put both files in the order of the filter'
  )


def test_a_document_that_only_one_file_has_is_named(files):
  scored_lists(files['scores'], ('law',), ('tax',))
  by_id(files['gold'], ('law',))
  assert refused(files, 'gold') == (
    "scores:2: document 'd1' is not in gold (documents only in gold: 0, only "
    'in scores: 1); both files must have the same documents'
  )


def test_a_transposed_matrix_is_said(files):
  scores = sparse.csr_array(np.ones((3, 4)))
  write_xc_scores(files['scores'], scores)
  write_xc(files['gold'], XcFile(None, Ragged.of([[0], [1], [2], []]), 3))
  assert refused(files, 'gold') == (
    'scores: has 3 rows and 4 columns, but gold has 4 documents and 3 labels; '
    'is the matrix transposed? A row belongs to a document'
  )


@pytest.mark.parametrize('save', [np.save, np.savez])
def test_a_dense_array_is_told_to_be_saved_as_sparse(files, save):
  with files['scores'].open('wb') as file:
    save(file, np.ones((3, 4)))
  with pytest.raises(DataError, match=r'with scipy.sparse.save_npz\(PATH'):
    read(files)
