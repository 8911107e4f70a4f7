"""Trains a model on documents that are in memory."""

from collections.abc import Sequence
import dataclasses
import os
import pathlib
import shutil
from typing import Any

from xjax.config.named import named_config
from xjax.config.run import Config
from xjax.core.console import log_in_context
from xjax.core.errors import ConfigError
from xjax.data.batches.sparse import SparseDocuments
from xjax.data.config import GivenFeaturesConfig, Norm, TfidfConfig
from xjax.data.formats.contract import DataConfig
from xjax.data.formats.draft import TRAIN
from xjax.data.formats.own.own import OwnData
from xjax.data.formats.xc_features import XcFeaturesData
from xjax.data.memory.folder import (
  LabelledDocuments,
  check_trainable,
  labelled_documents,
  write_folder,
)
from xjax.data.memory.labels import with_same_labels
from xjax.data.schema import Label
from xjax.run.api.model import Model
from xjax.run.api.saved import DATA, TemporaryFolder
from xjax.run.fit import fit as fit_run
from xjax.run.load import DEV, load as load_run

AUTO = 'auto'


def fit(
  texts: Any,
  labels: Any = None,
  config: Config | str = AUTO,
  workdir: str | os.PathLike | None = None,
  *,
  dev: tuple[Any, Any] | float = 0.1,
  label_names: Sequence[str | Label] | None = None,
  seed: int | None = None,
  verbose: bool = True,
) -> Model:
  """Trains a model on documents that are in memory, and judges it on dev.

  The documents are written to the folder data/ of the workdir. Then a normal
  run is made, as by the command `train`. The same call with the same workdir
  resumes the run, or loads the finished model.

  Args:
    texts: N documents: a list, tuple, generator, NumPy array or Series of texts
      or Documents; a DataFrame, whose columns are zones; or a matrix of
      features [N, D]. Rows of features are scaled to length 1, unless the
      config says otherwise.
    labels: gold labels of the N documents: a list (or tuple, set) of label ids
      for each document; one label id for each document; or an indicator matrix
      [N, L] of zeros and ones, dense or sparse. An integer label stands for its
      decimal digits. None uses the labels of Documents.
    config: 'auto', the name of a config of xjax, or a Config. The part `data`
      of the config is replaced, but its tokens and zones are kept.
    workdir: folder of the run. None means a temporary folder, which is deleted
      with the model.
    dev: a pair (texts, labels), or the share of the documents that is drawn for
      dev. On dev, the best checkpoint is chosen, probabilities are calibrated
      and the threshold is tuned. 0 means no dev.
    label_names: all labels, as ids or as Labels with names; for an indicator
      matrix, the labels of its columns. None means the labels that documents
      have.
    seed: seed of the split and of training; None means the config's seed.
    verbose: whether to show progress and the log.

  Returns:
    The model of the best checkpoint.

  Raises:
    ConfigError: the config does not fit the documents, or the workdir was made
      from other documents or with another config.
    DataError: a text or a label has a fault, or the numbers of texts and labels
      differ. The message has the position.
  """
  train = labelled_documents(texts, labels, label_names)
  check_trainable(train, 'texts')
  config = config_of(config)
  if seed is not None:
    config = dataclasses.replace(config, seed=seed)
  splits, share = _splits(train, dev, label_names)
  folder = None if workdir is not None else TemporaryFolder()
  path = pathlib.Path(os.path.expanduser(workdir or folder.path)).absolute()
  data = _data_of(config, path / DATA, train, share)
  config = dataclasses.replace(config, data=data)
  with log_in_context(verbose):
    is_new = write_folder(path / DATA, splits)
    try:
      fit_run(config, path)
    except BaseException:
      # The next call may have other documents if this one started no run.
      if is_new and not (path / 'config.json').exists():
        shutil.rmtree(path / DATA)
      raise
    return Model(load_run(path), folder)


def _splits(
  train: LabelledDocuments,
  dev: tuple[Any, Any] | float,
  label_names: Sequence[str | Label] | None,
) -> tuple[dict[str, LabelledDocuments], float]:
  """Returns the splits, and the share of train that the run draws for dev.

  If the share is less than one document, there is no dev.
  """
  if isinstance(dev, int | float) and not isinstance(dev, bool):
    if not 0 <= dev < 1:
      raise ConfigError(f'dev={dev}: a share must be from 0 to below 1')
    return {TRAIN: train}, float(dev) if len(train) * dev >= 1 else 0.0
  if not isinstance(dev, tuple | list) or len(dev) != 2:
    raise ConfigError('dev must be a pair (texts, labels), or a share')
  if label_names is None and train.labels.ordered:
    label_names = train.labels.labels
  held = labelled_documents(*dev, label_names, ('dev[0]', 'dev[1]'))
  check_trainable(held, 'dev[0]')
  is_sparse = isinstance(train.documents, SparseDocuments)
  if is_sparse != isinstance(held.documents, SparseDocuments):
    raise ConfigError('dev: must have features if texts has, else texts')
  first, second = with_same_labels(train.labels, held.labels)
  splits = {
    TRAIN: LabelledDocuments(train.documents, first),
    DEV: LabelledDocuments(held.documents, second),
  }
  return splits, 0.0


def config_of(config: Config | str) -> Config:
  """Returns the config that an argument `config` stands for.

  Args:
    config: 'auto', the name of a config of xjax, or a Config.

  Raises:
    ConfigError: there is no such config.
  """
  if isinstance(config, Config):
    return config
  if not isinstance(config, str):
    raise ConfigError(
      f"config={config!r}: must be 'auto', the name of a config, or a Config"
    )
  return named_config(config)


def _data_of(
  config: Config, folder: pathlib.Path, train: LabelledDocuments, share: float
) -> DataConfig:
  """Returns the part `data` of the config, for documents in a folder."""
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
    zones=data.zones,
    hold_out_labels=data.hold_out_labels,
    tokens=TfidfConfig() if tokens.sparse else tokens,
  )
