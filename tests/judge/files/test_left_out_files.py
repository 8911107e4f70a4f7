"""Files of any system, and lists of labels that judging leaves out."""

import gzip

import numpy as np
import pytest
import scipy.sparse

from tests.judge.test_left_out import (
  DEPTH,
  HELD_OUT,
  KEPT,
  META,
  SOME,
  TRAINED,
  L,
  N,
  gold_rows,
  same,
  scores_of,
)
from xjax.core.errors import ConfigError, DataError
from xjax.judge.files.judge_files import JudgeFiles, read_judged
from xjax.judge.judge import judge


@pytest.fixture
def files(tmp_path):
  """Scores of another system, gold labels, and labels to leave out."""
  scores_NL = np.exp(scores_of(np.arange(L)))
  rows = gold_rows()
  gold = np.zeros((N, TRAINED + HELD_OUT), bool)
  for row, labels in enumerate(rows):
    gold[row, [x for x in labels if x < TRAINED + HELD_OUT]] = True
  kept = KEPT[KEPT < TRAINED + HELD_OUT]
  for name, columns in (('whole', slice(None)), ('small', kept)):
    for end, array in (('', scores_NL), ('_gold', gold.astype(float))):
      matrix = scipy.sparse.csr_matrix(array[:, columns])
      scipy.sparse.save_npz(tmp_path / f'{name}{end}.npz', matrix)
  (tmp_path / 'meta.txt').write_text(''.join(f'{i}\n' for i in META))
  return tmp_path


def read(scores, gold, out=''):
  return read_judged(JudgeFiles(scores, gold, leave_out=str(out)), DEPTH)[0]


def test_files_of_scores_are_judged_as_if_they_had_no_such_columns(files):
  meta = files / 'meta.txt'
  ours = read(files / 'whole.npz', files / 'whole_gold.npz', meta)
  theirs = read(files / 'small.npz', files / 'small_gold.npz')
  assert same(judge(ours, SOME), judge(theirs, SOME))
  assert ours.lists['all'].ids.shape == (N, DEPTH)  # lists are filled


@pytest.mark.parametrize('text', [b'', b'\n \n', gzip.compress(b'', mtime=0)])
def test_an_empty_list_leaves_out_nothing(files, text):
  (files / 'list.txt').write_bytes(text)
  place = files / 'whole.npz', files / 'whole_gold.npz'
  ours, theirs = read(*place, files / 'list.txt'), read(*place)
  assert same(judge(ours, SOME), judge(theirs, SOME))


@pytest.mark.parametrize(
  ('text', 'error', 'message'),
  [
    ('98\n99\n', DataError, "has none of these labels .'98', '99'."),
    ('3\n3\n', DataError, "duplicate label '3'"),
    (None, ConfigError, 'there is no such file'),
    (''.join(f'{i}\n' for i in range(12)), DataError, 'no label is left'),
  ],
)
def test_a_faulty_list_of_labels_is_an_error(files, text, error, message):
  path = files / 'list.txt'
  if text is not None:
    path.write_text(text)
  with pytest.raises(error, match=message):
    read(files / 'whole.npz', files / 'whole_gold.npz', path)


def test_unknown_ids_are_ignored_with_a_warning(files, caplog):
  path = files / 'list.txt'
  path.write_text('3\n95\n96\n97\n98\n')
  found = read(files / 'whole.npz', files / 'whole_gold.npz', path)
  assert found.left_out.tolist() == [3]
  assert '4 ids ignored' in caplog.text
  assert "'95', '96', '97', ..." in caplog.text
