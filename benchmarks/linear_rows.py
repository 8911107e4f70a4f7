"""The rows and gold that linear.py gives to all peers."""

from collections.abc import Callable, Iterator
import dataclasses
import pathlib

import numpy as np
from scipy import sparse
from sklearn.preprocessing import normalize

from xjax.core.types import Ragged
from xjax.data.config import TfidfConfig
from xjax.data.formats.contract import DataConfig
from xjax.data.formats.xc_files import read_xc
from xjax.data.load import load_corpus
from xjax.data.text.tfidf import Tfidf
from xjax.train.sparse_inputs import SplitTexts

# X_train, Y_train, X_dev, Y_dev; dev is whatever is judged.
Rows = dict[str, sparse.csr_matrix]
RAW = '_raw'  # ends the name of a problem of rows as they are


def problems(
  name: str, data: DataConfig | None, folder: str, split: str
) -> Iterator[tuple[str, Callable[[], Rows]]]:
  """Yields (name, what makes the rows).

  Args:
    name: of the dataset.
    data: how its text is read; None: files of features, which make two
      problems, of rows of length 1 and of rows as they are.
    folder: of the dataset.
    split: that is judged, beside train.
  """
  if data is None:
    yield name, lambda: given(folder, split, normalize)
    yield name + RAW, lambda: given(folder, split, lambda rows: rows)
  else:
    data = dataclasses.replace(data, dir=folder)
    yield name, lambda: featurised(data, split)


def given(folder: str, split: str, of: Callable) -> Rows:
  """The rows of feature files, after a function of them."""
  made = {}
  for part, name in (('train', 'train'), ('dev', split)):
    found = read_xc(pathlib.Path(folder) / f'{name}.txt')
    made[f'X_{part}'] = sparse.csr_matrix(of(found.features))
    made[f'Y_{part}'] = gold_matrix(found.gold, found.n_labels)
  return made


def featurised(data: DataConfig, split: str) -> Rows:
  """TF-IDF of a corpus, as our configs have it."""
  corpus = load_corpus(data, 0, splits=('train', split))
  train, dev = corpus.split('train'), corpus.split(split)
  tfidf = Tfidf.fit(SplitTexts(train.documents), TfidfConfig())
  n_labels = len(corpus.label_space)
  return {
    'X_train': sparse.csr_matrix(tfidf(SplitTexts(train.documents))),
    'Y_train': gold_matrix(train.gold, n_labels),
    'X_dev': sparse.csr_matrix(tfidf(SplitTexts(dev.documents))),
    'Y_dev': gold_matrix(dev.gold, n_labels),
  }


def gold_matrix(gold: Ragged, n_labels: int) -> sparse.csr_matrix:
  """Gold as ones."""
  ones = np.ones(len(gold.values), np.float32)
  parts = ones, gold.values, gold.indptr
  return sparse.csr_matrix(parts, (len(gold), n_labels))
