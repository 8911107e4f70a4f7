"""Trains a model on documents that are in memory."""

from collections.abc import Sequence
import dataclasses
import numbers
import os
import pathlib
import reprlib
import shutil
from typing import Any
import warnings

from xjax.core.console import log_in_context
from xjax.core.errors import ConfigError, DataError
from xjax.data.documents import SparseDocuments
from xjax.data.formats.columns import SURE_LABELS
from xjax.data.formats.corpus_builder import TRAIN
from xjax.data.formats.data_config import DataConfig
from xjax.data.formats.own import OwnData
from xjax.data.formats.xc_features import XcFeaturesData
from xjax.data.in_memory import is_frame
from xjax.data.memory_folder import (
  LabelledDocuments,
  check_trainable,
  labelled_documents,
  write_folder,
)
from xjax.data.schema import Label
from xjax.data.tokens_config import GivenFeaturesConfig, Norm, TfidfConfig
from xjax.models.contract import DATA, DEV, Config
from xjax.models.run_copies import TemporaryFolder
from xjax.run.api.model import Model
from xjax.run.fit import FitResult, fit as fit_run
from xjax.run.named_configs import named_config
from xjax.run.open_run import open_run

AUTO = 'auto'


def fit_documents(
  texts: Any,
  labels: Any = None,
  config: Config | str = AUTO,
  workdir: str | os.PathLike | None = None,
  *,
  dev: tuple[Any, Any] | float = 0.1,
  label_names: Sequence[str | Label] | None = None,
  seed: int | None = None,
  verbose: bool = True,
) -> tuple[Model, FitResult]:
  """Trains and judges, as xjax.fit does; returns the best model and results."""
  train = labelled_documents(texts, labels, label_names)
  check_trainable(train, 'texts')
  zones = _checked_zones(train)
  if zones == ('text',) and not is_frame(texts):
    zones = ()  # no name that the user has given
  config = config_of(config)
  if seed is not None:
    config = dataclasses.replace(config, seed=seed)
  splits, share = _splits(train, dev, label_names, zones)
  is_small = DEV not in splits and not share and dev
  folder = None if workdir is not None else TemporaryFolder()
  path = pathlib.Path(os.path.expanduser(workdir or folder.path)).absolute()
  data = _data_of(config, path / DATA, train, share, zones)
  config = dataclasses.replace(config, data=data)
  with log_in_context(verbose):
    is_new = write_folder(path / DATA, splits)
    try:
      result = fit_run(config, path)
    except BaseException:
      # The next call may have other documents if this one started no run.
      if is_new and not (path / 'config.json').exists():
        shutil.rmtree(path / DATA)
      raise
    model = Model(open_run(path), folder)
  if is_small and not model.run.has_probabilities():
    warnings.warn(
      f'texts has {len(train)} documents, too few for dev={dev}: scores are '
      'margins, not probabilities, and no threshold is tuned; give more '
      'documents, or dev=(texts, labels)',
      stacklevel=3,
    )
  return model, result


def _checked_zones(train: LabelledDocuments) -> tuple[str, ...]:
  """Returns the zones of documents (() for features), which are no labels."""
  documents, rows = train.documents, train.labels.rows
  if isinstance(documents, SparseDocuments):
    return ()
  zones = tuple(dict.fromkeys(zone for x in documents for zone in x.zones))
  for zone in zones if len(zones) > 1 else ():
    if zone.lower() in SURE_LABELS:
      raise DataError(
        f'texts has the column {zone!r}, which would be read as text: leave it '
        'out, or give it another name if it is no label'
      )
    if _tell([document.zones.get(zone, '') for document in documents], rows):
      warnings.warn(
        f'texts: the column {zone!r} alone tells the labels of all documents; '
        'leave it out if it is no text',
        stacklevel=4,
      )
  return zones


def _tell(cells: Sequence[str], rows: Sequence[tuple[str, ...]]) -> bool:
  """Returns whether cells seem to be the labels of documents, or codes."""
  few = len({*cells}) <= len(rows) / 2 and len({*rows}) > 1
  if few and len({*zip(cells, rows)}) == len({*cells}):
    return True
  for cell, ids in zip(cells, rows):
    rest = cell
    for id_ in sorted(ids, key=len, reverse=True):
      rest = rest.replace(id_, '')
    if any(map(str.isalnum, rest)) or not all(id_ in cell for id_ in ids):
      return False
  return any(rows)


def _splits(
  train: LabelledDocuments,
  dev: tuple[Any, Any] | float,
  label_names: Sequence[str | Label] | None,
  zones: Sequence[str],
) -> tuple[dict[str, LabelledDocuments], float]:
  """Returns splits, and the share of train for dev; below 1 document: none."""
  if isinstance(dev, numbers.Real) and not isinstance(dev, bool):
    if not 0 <= dev < 1:
      raise ConfigError(f'dev={dev!r}: a share must be from 0 to below 1')
    return {TRAIN: train}, float(dev) if len(train) * dev >= 1 else 0.0
  if not isinstance(dev, tuple | list) or len(dev) != 2:
    raise ConfigError(
      f'dev={reprlib.repr(dev)}: must be a pair (texts, labels), or a share'
    )
  if label_names is None:
    label_names = train.labels.labels
  names = 'dev[0]', 'dev[1]'
  dev_part = labelled_documents(*dev, label_names, names, zones=zones)
  check_trainable(dev_part, 'dev[0]')
  is_sparse = isinstance(train.documents, SparseDocuments)
  if is_sparse != isinstance(dev_part.documents, SparseDocuments):
    raise ConfigError('dev: must have features if texts has, else texts')
  return {TRAIN: train, DEV: dev_part}, 0.0


def config_of(config: Config | str) -> Config:
  """Returns a Config of 'auto', a name, a path of a file, or a Config."""
  if isinstance(config, Config):
    return config
  if not isinstance(config, str):
    raise ConfigError(
      f"config={config!r}: must be 'auto', the name of a config, a config file "
      'or a Config'
    )
  return named_config(config)


def _data_of(
  config: Config,
  folder: pathlib.Path,
  train: LabelledDocuments,
  share: float,
  zones: tuple[str, ...],
) -> DataConfig:
  data, tokens = config.data, config.data.tokens
  shared = {name: getattr(data, name) for name in ('cache_dir', 'workers')} | {
    'dir': str(folder),
    'dev_share': share,
    'split_seed': config.seed,
  }
  if isinstance(train.documents, SparseDocuments):
    if not tokens.sparse:
      tokens = GivenFeaturesConfig(norm=Norm.L2)
    return XcFeaturesData(**shared, named_ids=True, tokens=tokens)
  return OwnData(
    **shared,
    test_share=0.0,
    zones=data.zones or tuple(x for x in zones if x not in data.facts),
    facts=data.facts,
    hold_out_labels=data.hold_out_labels,
    tokens=TfidfConfig() if tokens.sparse else tokens,
  )
