"""Makes the rows and gold that linear.py gives to all peers."""

from collections.abc import Callable, Iterator
import dataclasses
import pathlib

import numpy as np
from scipy import sparse
from sklearn.preprocessing import normalize

from xjax.core.types import Ragged
from xjax.data.formats.data_config import DataConfig
from xjax.data.formats.xc_files import read_xc
from xjax.data.load import load_corpus
from xjax.data.text.tfidf import Tfidf
from xjax.data.tokens_config import TfidfConfig
from xjax.models.features import DocumentTexts

# X_train, Y_train, X_dev, Y_dev; dev stands for the judged split.
Rows = dict[str, sparse.csr_matrix]
RAW = '_raw'  # suffix of the name of a problem with unchanged rows


def problems(
  name: str, data: DataConfig | None, folder: str, split: str
) -> Iterator[tuple[str, Callable[[], Rows]]]:
  """Yields pairs (name, function that makes the rows).

  Args:
    name: name of the dataset.
    data: config of text data; None: files of features, which make two problems,
      one with rows of unit length and one with unchanged rows.
    folder: folder of the dataset.
    split: split to judge; train is used too.
  """
  if data is None:
    yield name, lambda: rows_of_files(folder, split, normalize)
    yield name + RAW, lambda: rows_of_files(folder, split, lambda rows: rows)
  else:
    data = dataclasses.replace(data, dir=folder)
    yield name, lambda: rows_of_texts(data, split)


def rows_of_files(folder: str, split: str, transform: Callable) -> Rows:
  """Returns the rows of feature files, after a transformation."""
  rows = {}
  for part, name in (('train', 'train'), ('dev', split)):
    xc = read_xc(pathlib.Path(folder) / f'{name}.txt')
    rows[f'X_{part}'] = sparse.csr_matrix(transform(xc.matrix()))
    rows[f'Y_{part}'] = gold_matrix(xc.labels, xc.n_labels)
  return rows


def rows_of_texts(data: DataConfig, split: str) -> Rows:
  """Returns TF-IDF rows of a corpus, with the settings of our configs."""
  corpus = load_corpus(data, 0, splits=('train', split))
  train, dev = corpus.split('train'), corpus.split(split)
  tfidf = Tfidf.fit(DocumentTexts(train.documents), TfidfConfig())
  n_labels = len(corpus.label_space)
  return {
    'X_train': sparse.csr_matrix(tfidf(DocumentTexts(train.documents))),
    'Y_train': gold_matrix(train.gold, n_labels),
    'X_dev': sparse.csr_matrix(tfidf(DocumentTexts(dev.documents))),
    'Y_dev': gold_matrix(dev.gold, n_labels),
  }


def gold_matrix(gold: Ragged, n_labels: int) -> sparse.csr_matrix:
  """Returns gold as a matrix of ones."""
  ones = np.ones(len(gold.values), np.float32)
  parts = ones, gold.values, gold.indptr
  return sparse.csr_matrix(parts, (len(gold), n_labels))
