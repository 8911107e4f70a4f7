"""Defines a scikit-learn estimator around the models of xjax."""

import dataclasses
import numbers
from typing import Any, Self
import warnings

import numpy as np
from scipy import sparse
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.preprocessing import LabelBinarizer, MultiLabelBinarizer
from sklearn.utils import Tags, assert_all_finite
from sklearn.utils.metaestimators import available_if
from sklearn.utils.multiclass import (
  check_classification_targets,
  type_of_target,
)
from sklearn.utils.validation import (
  check_consistent_length,
  check_is_fitted,
  column_or_1d,
  validate_data,
)

from xjax.core.errors import ConfigError
from xjax.core.texts import plain_name
from xjax.core.types import PAD
from xjax.data.files.cells import as_flag, is_missing
from xjax.data.formats.xc_features import XcFeaturesData
from xjax.data.in_memory import (
  documents_of,
  flags_of,
  is_frame,
  is_list,
  labels_of,
  warn_of_joined,
)
from xjax.data.schema import Document
from xjax.data.tokens_config import GivenFeaturesConfig, Norm
from xjax.judge.judge import score_threshold
from xjax.judge.label_lists import LabelLists
from xjax.models.contract import Config
from xjax.models.linear.dual import Loss
from xjax.run.api.fitting import AUTO, config_of, fit_documents
from xjax.run.api.model import score_matrix
from xjax.run.auto import linear_parts
from xjax.run.evaluate_split import saved_threshold

_ALL_LISTED = 1000  # up to so many labels, all labels of a document are scored


def _targets(y: Any) -> Any:
  """Returns y as an array, a CSR matrix, or a list of tuples of ids."""
  if sparse.issparse(y):
    if y.shape[1] > 1:
      return y
    y = y.toarray()  # scikit-learn reads one column as two classes
  is_series = hasattr(y, 'to_numpy') and not is_frame(y)
  is_objects = isinstance(y, np.ndarray) and y.dtype == object and y.ndim == 1
  if is_series or is_objects or isinstance(y, list | tuple):
    y = list(y)
    if any(map(is_list, y)) and not _is_matrix(y):
      rows = labels_of(y, name='y').rows
      ids = (id_ for row in y for id_ in row)
      if all(isinstance(id_, numbers.Integral) for id_ in ids):
        rows = [tuple(map(int, row)) for row in rows]
      return rows
    if any(map(is_missing, y)):
      raise ValueError('y contains NaN, or another missing value')
  y = np.asarray(y)
  # The nullable types of pandas become objects.
  if y.ndim == 2 and y.dtype.kind in 'OUT' and (flags_of(y) < 2).all():
    y = flags_of(y).astype(int)
  elif y.ndim == 2 and y.dtype == object and y.shape[1] > 1:
    labels_of(y, name='y')  # says which value is not 0 or 1
  elif y.ndim == 1 and y.dtype.kind == 'O':
    values = y.tolist()
    if values and all(isinstance(value, numbers.Integral) for value in values):
      y = np.array(values)
  if y.ndim == 2 and y.shape[1] > 1:
    return y
  y = column_or_1d(y, warn=True)
  if y.dtype.kind not in 'OUT':
    return y
  names = [plain_name(x) if isinstance(x, str) else x for x in y.tolist()]
  return np.array(names, str if y.dtype.kind == 'U' else y.dtype)


def _is_matrix(rows: list[Any]) -> bool:
  """Returns whether lists are rows of zeros and ones."""
  if any(isinstance(y, set | frozenset) or not is_list(y) for y in rows):
    return False
  sizes = {*map(len, rows)}
  if len(sizes) > 1 or max(sizes) < 2:
    return False
  return all(as_flag(x) is not None for y in rows for x in y)


def _fitted_binarizer(y: Any) -> LabelBinarizer | MultiLabelBinarizer:
  """Returns what turns labels into indicators [N, L]; with two classes, L is 1.

  It knows the classes, and in which form the labels are given and returned.
  """
  if isinstance(y, list):
    if not any(y):
      raise ValueError('y has no label; give at least one document a label')
    return MultiLabelBinarizer(sparse_output=True).fit(y)
  if sparse.issparse(y) or type_of_target(y) == 'multilabel-indicator':
    labels_of(y, name='y')  # checks that all values are 0 or 1
    return LabelBinarizer(sparse_output=True).fit(y)
  assert_all_finite(y, input_name='y')
  warn_of_joined(y.ravel()[:1000].tolist(), 'y')
  check_classification_targets(y)
  binarizer = LabelBinarizer(sparse_output=True).fit(y)
  if len(binarizer.classes_) < 2:
    raise ValueError('y has only one class; at least two are needed')
  return binarizer


def _can_give_probabilities(estimator: 'XMCClassifier') -> bool:
  if getattr(estimator, 'model_', None):
    return estimator.model_.run.has_probabilities()
  return True


class XMCClassifier(ClassifierMixin, BaseEstimator):
  """Assigns labels to texts or to rows of features, as scikit-learn expects.

  X is a list or array of texts, a DataFrame of texts, or a matrix [N, D] of
  features, dense or sparse. y has one of these forms, and predict returns the
  same form:

  - an indicator matrix [N, L] of zeros and ones, a dense array or CSR, which
    scikit-learn's MultiLabelBinarizer makes of lists of labels;
  - an array with one class for each document;
  - for each document, a list of ids, texts or integers. predict returns tuples.

  If there are more than 1,000 labels, only the config.eval.depth (usually 50)
  best labels of a document are scored. The other labels count as not assigned.

  Attributes:
    classes_: the classes; for an indicator matrix, the numbers of its columns.
    model_: the xjax.Model.
    threshold_: float, a label is assigned if its score is at least this number.
    n_features_in_: number of features, if X is a matrix.
  """

  def __init__(
    self,
    config: Config | str = AUTO,
    *,
    c: float | None = None,
    dev: float = 0.0,
    scale: bool = True,
    random_state: int = 0,
    verbose: bool = False,
  ) -> None:
    """Sets the parameters of the estimator.

    Args:
      config: 'auto', the name of a config of xjax, or a Config. 'auto' is a
        logistic model, which has probabilities.
      c: factor of the sum of all losses in linear models and label trees (C in
        LIBLINEAR); None means the config's value.
      dev: share of the documents that is held out, to calibrate probabilities
        and to tune the threshold. With 0, all documents are trained on, and
        labels with at least probability 0.5 (or margin 0) are assigned.
      scale: whether rows of features are scaled to length 1.
      random_state: seed of training and of the dev split.
      verbose: whether to show progress and the log.
    """
    self.config = config
    self.c = c
    self.dev = dev
    self.scale = scale
    self.random_state = random_state
    self.verbose = verbose

  def __sklearn_tags__(self) -> Tags:
    tags = super().__sklearn_tags__()
    tags.input_tags.sparse = True
    tags.classifier_tags.multi_label = True
    return tags

  def fit(self, X: Any, y: Any) -> Self:
    """Trains a model on N texts, or features [N, D], and their labels.

    Raises:
      ValueError: X or y has a fault.
      UserError: a text, a label or a parameter has a fault.
    """
    if y is None:
      raise ValueError(
        f'{type(self).__name__} requires y to be passed, but the target y is '
        'None'
      )
    is_text = _is_text(X)
    if not is_text:
      X = validate_data(self, X, accept_sparse='csr')
    check_consistent_length(X, y)
    y = _targets(y)
    self._binarizer = _fitted_binarizer(y)
    self._dtype = getattr(y, 'dtype', int)
    self.classes_ = self._binarizer.classes_
    matrix = sparse.csr_array(self._binarizer.transform(y)).astype(bool)
    self.model_, self.threshold_, self._n_columns = None, 0.0, matrix.shape[1]
    if not matrix.nnz:
      warnings.warn('y has no label, so none is ever assigned', stacklevel=2)
      return self
    self.model_, _ = fit_documents(
      X,
      matrix,
      self._full_config(matrix.shape, is_text),
      dev=self.dev,
      seed=self.random_state,
      verbose=self.verbose,
    )
    self.threshold_ = self._threshold()
    return self

  def predict(self, X: Any) -> Any:
    """Returns the assigned labels, in the form of the y of `fit`."""
    lists = self._lists(X)
    if not self._has_indicators:
      least = np.nextafter(0, -1)  # of two classes, 0 assigns the second
      return self._binarizer.inverse_transform(self._decision(lists), least)
    kept = lists.keep(lists.at_least(self.threshold_))
    ones = np.ones(kept.ids.shape, self._dtype)
    assigned = score_matrix(kept, ones, len(self.classes_))
    if isinstance(self._binarizer, MultiLabelBinarizer):
      return self._binarizer.inverse_transform(assigned)
    return self._formed(assigned)

  def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
    """Returns the accuracy; names of classes count in any Unicode form."""
    y = _targets(y)
    if not isinstance(y, list):
      return super().score(X, y, sample_weight)
    check_consistent_length(X, y, sample_weight)
    right = [{*a} == {*b} for a, b in zip(y, self.predict(X))]
    return float(np.average(right, weights=sample_weight))

  @available_if(_can_give_probabilities)
  def predict_proba(self, X: Any) -> Any:
    """Returns probabilities float64 [N, L].

    They are CSR if y was CSR, and else a dense array. If y was one class per
    document, the probabilities of a document sum to 1.
    """
    lists = self._lists(X)
    scores_NK = lists.scores
    if self.model_:
      scores_NK = self.model_.run.readable(lists.ids, scores_NK)
    matrix = score_matrix(lists, scores_NK, self._n_columns)
    if self._has_indicators:
      return self._formed(matrix)
    dense_NL = matrix.toarray()
    if len(self.classes_) == 2:
      return np.concatenate([1 - dense_NL, dense_NL], axis=1)
    return dense_NL / dense_NL.sum(axis=1, keepdims=True)

  def decision_function(self, X: Any) -> np.ndarray:
    """Returns scores float64 [N, L]; scores from 0 on are assigned labels.

    For two classes, the scores have the shape [N]. A label that was not scored
    has a score below 0, and below all scored labels of its document.
    """
    scores_NL = self._decision(self._lists(X))
    two = not self._has_indicators and len(self.classes_) == 2
    return scores_NL[:, 0] if two else scores_NL

  @property
  def _has_indicators(self) -> bool:
    y_type = getattr(self._binarizer, 'y_type_', 'multilabel-indicator')
    return y_type == 'multilabel-indicator'

  def _full_config(self, shape: tuple[int, int], is_text: bool) -> Config:
    """Returns the config with the parameters c and scale."""
    config = config_of(self.config)
    train, data = config.train, config.data
    if self.config == AUTO:
      model, train, tokens = linear_parts(*shape, data.tokens)
      train = dataclasses.replace(train, loss=Loss.LOGISTIC, c=10.0)
      data = dataclasses.replace(data, tokens=tokens)
      config = dataclasses.replace(config, model=model)
    if self.c is not None and not hasattr(train, 'c'):
      raise ConfigError(
        f'c={self.c}: {type(train).__name__} has no such field; only linear '
        'models and label trees have it'
      )
    if self.c is not None:
      train = dataclasses.replace(train, c=self.c)
    if not is_text:
      norm = Norm.L2 if self.scale else Norm.NONE
      data = XcFeaturesData(tokens=GivenFeaturesConfig(norm=norm))
    return dataclasses.replace(config, train=train, data=data)

  def _threshold(self) -> float:
    """Returns the tuned threshold, or else the model's own threshold."""
    run = self.model_.run
    tuned = saved_threshold(run.workdir, run.step)
    if tuned is not None:
      return tuned
    if run.assigned_above is not None:
      return run.assigned_above
    return score_threshold(run.score_kind, 0.5)

  def _lists(self, X: Any) -> LabelLists:
    check_is_fitted(self)
    reads_texts = not hasattr(self, 'n_features_in_')
    if not (_is_text(X) or reads_texts):
      X = validate_data(self, X, accept_sparse='csr', reset=False)
    if not self.model_:
      none = np.zeros((len(documents_of(X)), 0))
      return LabelLists(none.astype(int), none)
    run = self.model_.run
    k = run.n_labels
    k = k if k <= _ALL_LISTED else self.model_.config.eval.depth
    return run.lists(self.model_.documents(X), k)

  def _decision(self, lists: LabelLists) -> np.ndarray:
    """Returns float64 [N, L], scores minus the threshold."""
    real_NK = lists.ids != PAD
    lowest_N = np.where(real_NK, lists.scores, np.inf).min(axis=1, initial=0)
    lowest_N = np.minimum(lowest_N - self.threshold_, 0) - 1
    shape = len(lists.ids), self._n_columns
    scores_NL = np.broadcast_to(lowest_N[:, None], shape).astype(np.float64)
    rows = np.nonzero(real_NK)[0]
    listed = lists.scores[real_NK].astype(np.float64)
    scores_NL[rows, lists.ids[real_NK]] = listed - self.threshold_
    return scores_NL

  def _formed(self, matrix: sparse.csr_array) -> Any:
    is_sparse = getattr(self._binarizer, 'sparse_input_', False)
    return matrix if is_sparse else matrix.toarray()


def _is_text(X: Any) -> bool:
  if is_frame(X):
    return all(_is_text(list(X[column])) for column in X.columns)
  if hasattr(X, 'to_numpy') or isinstance(X, list | tuple):
    first = next((x for x in X if not is_missing(x)), '')
    return len(X) > 0 and isinstance(first, str | Document)
  is_array = isinstance(X, np.ndarray) and X.ndim == 1
  return is_array and (X.dtype.kind in 'UT' or _is_text(X.tolist()))
