"""Starts a run from an encoder's folder, which is not needed afterwards."""

from typing import Any

from absl import logging

from xjax.core.atomic import write_json
from xjax.core.config_part import kinds
from xjax.core.distributed import barrier, is_host0
from xjax.core.errors import ConfigError
from xjax.data.formats.data_config import DataConfig
from xjax.data.schema import Split
from xjax.data.text.subwords import Subwords
from xjax.networks.encoders.encoder import PretrainedConfig
from xjax.networks.pretrained.architecture import (
  Architecture,
  architecture_of,
  small_encoder,
)
from xjax.networks.pretrained.convert import parameter_shapes
from xjax.networks.pretrained.model_folder import ModelFolder
from xjax.networks.text_model import TextModelConfig
from xjax.train.parameters import by_path, replace_values
from xjax.train.saved_steps import complete_steps
from xjax.train.state import TrainState
from xjax.train.workdir import Workdir

_SPECIAL = 2  # tokens that the tokenizer puts around a text
SOME_WORDS = 64  # any vocabulary size, for plans that do not depend on it


def check_encoder(model: TextModelConfig, data: DataConfig) -> None:
  """Checks the folder of the encoder, before any file of the run is written.

  A ConfigError says that the config does not fit the encoder; a DataError, that
  the folder is missing or has a fault. Of weight files, only the headers are
  checked.
  """
  if not data.tokens.pretrained:
    return
  encoder = model.encoder
  if not encoder.folder and data.generated:
    return
  if not encoder.folder:
    raise ConfigError(
      "config.model.encoder.folder='': give the pretrained encoder as "
      '--config.model.encoder.folder=FOLDER. FOLDER is a folder in the form of '
      'Hugging Face (config.json, model.safetensors and the tokenizer), or the '
      'name of a model in the local Hugging Face cache'
    )
  folder = _folder(model)
  tokenizer = folder.tokenizer(encoder.spare_rows)
  special, longest = tokenizer.n_special, folder.architecture.max_tokens
  if data.tokens.max_tokens <= special:
    raise ConfigError(
      f'config.data.tokens.max_tokens={data.tokens.max_tokens}: must be '
      f'more than {special}, the number of special tokens that the tokenizer '
      f'of {folder.path} puts around a text'
    )
  check_lengths(model, data, longest, f'the encoder of {folder.path}', special)


def planned_architecture(
  model: TextModelConfig, data: DataConfig
) -> Architecture | None:
  """Returns the sizes of the pretrained encoder, or None if there is none."""
  if not data.tokens.pretrained:
    return None
  if model.encoder.folder:
    return _model_folder(model).architecture
  return architecture_of(
    _small(model, data, SOME_WORDS), 'the encoder without a folder'
  )


def keep_encoder(
  model: TextModelConfig, data: DataConfig, train: Split, workdir: Workdir
) -> Subwords:
  """Writes the tokenizer and the encoder's sizes, and returns the tokenizer."""
  # A start before the first checkpoint may have had another folder.
  if not complete_steps(workdir.checkpoints) and is_host0():
    tokenizer, sizes = first_encoder(model, data, train)
    with workdir.recording(workdir.tokenizer):
      tokenizer.save(workdir.tokenizer)
    with workdir.recording(workdir.encoder):
      write_json(workdir.encoder, sizes)
  barrier('xjax:encoder')
  return workdir.subwords()


def first_encoder(
  model: TextModelConfig, data: DataConfig, train: Split
) -> tuple[Subwords, dict[str, Any]]:
  """Returns the tokenizer and the encoder's sizes for a new run."""
  # Without a folder, the tokenizer is built from the words of `train`.
  if model.encoder.folder:
    folder = _model_folder(model)
    return folder.tokenizer(model.encoder.spare_rows), dict(folder.config)
  texts = (train.documents[row].text() for row in range(len(train)))
  last = model.encoder.architecture.summary_last
  tokenizer = Subwords.fit(texts, summary_last=last)
  return tokenizer, _small(model, data, len(tokenizer))


def start_encoder(state: TrainState, model: TextModelConfig) -> TrainState:
  """Replaces the encoder's initial weights by pretrained weights.

  Do not use the encoder and pooler of `state` afterwards. Raises ConfigError if
  the config needs a pooler that the folder lacks.
  """
  if not model.encoder.pretrained or not model.encoder.folder:
    return state
  folder = _folder(model)
  weights, params = folder.parameters(), by_path(state.params)
  wanted = parameter_shapes(folder.architecture, model.pooling.pooler)
  # Only a pooler can be without pretrained weights; it keeps its fresh weights.
  wanted = wanted.keys() & weights.keys()
  if is_host0():
    size = sum(weights[path].size for path in wanted)
    logging.info('%s: %d pretrained weights', folder.path, size)
  return state.with_params(
    {path: replace_values(params[path], weights[path]) for path in wanted}
  )


def _small(
  model: TextModelConfig, data: DataConfig, words: int
) -> dict[str, Any]:
  longest, head = data.tokens.max_tokens, model.head
  longest += head.appended
  if head.describes:
    longest = max(longest, head.descriptor.max_words + _SPECIAL)
  return small_encoder(model.encoder.architecture, words, longest)


def check_lengths(
  model: TextModelConfig,
  data: DataConfig,
  longest: int | None,
  encoder: str,
  special: int | None = None,
) -> None:
  """Checks that documents, and label names, fit the positions of an encoder."""
  # Documents count with the vectors that the head appends, names with their
  # `special` tokens; None checks no names.
  head = model.head
  field, length = 'config.data.tokens.max_tokens', data.tokens.max_tokens
  texts = [(field, length, head.appended, 'vectors that the head appends')]
  if special is not None and head.describes:
    field = 'config.model.head.descriptor.max_words'
    length = head.descriptor.max_words
    texts.append((field, length, special, 'special tokens'))
  for field, length, more, kind in texts:
    if longest is not None and length + more > longest:
      included = f', including {more} {kind}' if more else ''
      raise ConfigError(
        f'{field}={length}: {encoder} reads at most {longest} tokens{included}'
      )


def _model_folder(model: TextModelConfig) -> ModelFolder:
  """Returns the encoder's folder, after a check of its family."""
  encoder = model.encoder
  folder = ModelFolder.at(encoder.folder)
  if not isinstance(folder.architecture, encoder.architecture):
    fitting = ' or '.join(
      f'{kind.__name__}(...)'
      for kind in kinds(PretrainedConfig)
      if isinstance(folder.architecture, kind.architecture)
    )
    raise ConfigError(
      f'config.model.encoder={type(encoder).__name__}(...): the "model_type" '
      f'of {folder.path} is "{folder.config["model_type"]}"; set '
      f'config.model.encoder={fitting}, or give another folder'
    )
  return folder


def _folder(model: TextModelConfig) -> ModelFolder:
  """Returns the encoder's folder, after a check that it has all weights."""
  folder = _model_folder(model)
  wanted = parameter_shapes(folder.architecture, model.pooling.pooler)
  lacking = sorted(set(wanted) - folder.paths())
  if lacking and folder.architecture.has_pooler:
    raise ConfigError(
      f'config.model.pooling.pooler=True: {folder.path} has no pooler '
      f'({", ".join(lacking)}); set config.model.pooling.pooler=False'
    )
  return folder
