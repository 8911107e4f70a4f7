"""A new run whose encoder begins with pretrained weights.

What of the encoder's folder is needed later goes to the workdir's features/:
its sizes (encoder.json) and its tokenizer. The folder may go then.
"""

import dataclasses
from typing import Any

from absl import logging
import numpy as np

from xjax.config.run import Config
from xjax.core.atomic import write_json
from xjax.core.distributed import barrier, is_host0
from xjax.core.errors import ConfigError
from xjax.data.schema import Split
from xjax.data.text.subwords import Subwords
from xjax.score.pretrained.architecture import Architecture, architecture_of
from xjax.score.pretrained.convert import parameter_shapes
from xjax.score.pretrained.model_folder import ModelFolder, check_vocabulary
from xjax.train.parameters import by_path, from_paths, replace_values
from xjax.train.state import TrainState
from xjax.train.workdir import Workdir

# Of an encoder that nobody trained.
_SMALL = {
  'model_type': 'bert',
  'hidden_size': 16,
  'num_hidden_layers': 2,
  'num_attention_heads': 2,
  'intermediate_size': 32,
}
_SPECIAL = 2  # tokens that its tokenizer puts around a text
SOME_WORDS = 64  # a guess, where sizes do not depend on it


def check_encoder(config: Config, workdir: Workdir) -> None:
  """Refuses an encoder's folder before anything is made for a run.

  Args:
    config: of the run.
    workdir: of the run, which has no complete checkpoint.

  Raises:
    ConfigError: no folder is named, other than for the embedded corpus;
      documents or names are longer than what it reads, or it has no
      pooler and the config asks for it; or the workdir keeps another encoder's
      tokenizer or sizes.
    DataError: there is no such folder, or it has a fault. The weights are not
      read yet, only what files say of them.
  """
  if not config.data.tokens.pretrained:
    return
  if not config.model.encoder.folder:
    _check_made(config)
    return
  folder = _folder(config)
  tokenizer = _tokenizer(folder, config)
  _check_lengths(config, folder, tokenizer.n_special)
  _check_kept(folder, tokenizer, workdir)


def planned_architecture(config: Config) -> Architecture | None:
  """The sizes that a run's encoder will have; None: it has no such encoder.

  Of one without a folder, how many words it will read is a guess.

  Raises:
    DataError: there is no such folder, or it has a fault.
  """
  if not config.data.tokens.pretrained:
    return None
  if config.model.encoder.folder:
    return ModelFolder.at(config.model.encoder.folder).architecture
  return architecture_of(_small(config, SOME_WORDS), 'an encoder of no folder')


def keep_encoder(config: Config, train: Split, workdir: Workdir) -> Subwords:
  """The run's tokenizer, from its workdir once it is there.

  Args:
    config: of the run.
    train: whose words an encoder without a folder reads.
    workdir: of the run.

  Raises:
    DataError: as check_encoder, or a file of the workdir is damaged.
  """
  if is_host0() and not workdir.encoder.exists():
    tokenizer, sizes = first_encoder(config, train)
    tokenizer.save(workdir.tokenizer)
    # Last: with it both are there.
    write_json(workdir.encoder, sizes)
  barrier('xjax:encoder')
  tokenizer = workdir.subwords()
  workdir.record_vocabulary(tokenizer)
  return tokenizer


def first_encoder(
  config: Config, train: Split
) -> tuple[Subwords, dict[str, Any]]:
  """The tokenizer and the sizes (architecture_of) that a run begins with.

  Args:
    config: of the run.
    train: whose words an encoder without a folder reads.

  Raises:
    DataError: as check_encoder.
  """
  if config.model.encoder.folder:
    folder = ModelFolder.at(config.model.encoder.folder)
    return _tokenizer(folder, config), dict(folder.config)
  texts = (train.documents[row].text() for row in range(len(train)))
  tokenizer = Subwords.fit(texts)
  return tokenizer, _small(config, len(tokenizer))


def start_encoder(state: TrainState, config: Config) -> TrainState:
  """Puts pretrained weights, if the config names any, in a fresh state.

  Args:
    state: fresh; its encoder and pooler are used up.
    config: of the run.

  Returns:
    The state, sharded as before.

  Raises:
    ConfigError: the config asks for a pooler that the folder lacks.
    DataError: there is no such folder, or it has a fault.
  """
  if not config.data.tokens.pretrained or not config.model.encoder.folder:
    return state
  folder = _folder(config)
  found, params = folder.parameters(), by_path(state.params)
  wanted = parameter_shapes(folder.architecture, config.model.pooling.pooler)
  for path in wanted:
    everywhere = np.ones((1,) * found[path].ndim, bool)
    params[path] = replace_values(params[path], everywhere, found[path])
  if is_host0():
    size = sum(found[path].size for path in wanted)
    logging.info('%s: %d pretrained weights', folder.path, size)
  return dataclasses.replace(state, params=from_paths(state.params, params))


def _small(config: Config, words: int) -> dict[str, Any]:
  longest, head = config.data.tokens.max_tokens, config.model.head
  if head.describes:
    longest = max(longest, head.descriptor.max_words + _SPECIAL)
  return {
    **_SMALL,
    'vocab_size': words,
    'max_position_embeddings': longest,
  }


def _check_made(config: Config) -> None:
  """Refuses a small encoder that nobody trained where there is real text."""
  if not config.data.generated:
    raise ConfigError(
      "config.model.encoder.folder='': name the pretrained encoder, with "
      '--config.model.encoder.folder=FOLDER: a folder as Hugging Face has it '
      '(config.json, model.safetensors and the tokenizer), or the name of a '
      'model in the local Hugging Face cache'
    )


def _check_lengths(config: Config, folder: ModelFolder, special: int) -> None:
  """Refuses texts beyond an encoder's positions, or without room for one."""
  longest, head = folder.architecture.max_tokens, config.model.head
  if config.data.tokens.max_tokens <= special:
    raise ConfigError(
      f'config.data.tokens.max_tokens={config.data.tokens.max_tokens}: the '
      f'tokenizer of {folder.path} puts {special} special tokens around a text'
    )
  fields = {'config.data.tokens.max_tokens': (config.data.tokens.max_tokens, 0)}
  if head.describes:
    words = head.descriptor.max_words
    fields['config.model.head.descriptor.max_words'] = words, special
  for field, (asked, more) in fields.items():
    if asked + more > longest:
      besides = f', {more} of them special ones' if more else ''
      raise ConfigError(
        f'{field}={asked}: the encoder of {folder.path} reads at most '
        f'{longest} tokens{besides}'
      )


def _check_kept(
  folder: ModelFolder, tokenizer: Subwords, workdir: Workdir
) -> None:
  """Refuses another encoder than the one of a start that did not get far."""
  if not workdir.encoder.exists():
    return
  alike = workdir.subwords().digest == tokenizer.digest
  if not alike or workdir.architecture() != folder.architecture:
    raise ConfigError(
      f'config.model.encoder.folder: {workdir.path} began with an encoder of '
      f'{"other sizes" if alike else "another tokenizer"} than that of '
      f'{folder.path}; take a new workdir, or the folder that it began with'
    )


def _folder(config: Config) -> ModelFolder:
  """The encoder's, once the headers of its weights say that all are there."""
  folder = ModelFolder.at(config.model.encoder.folder)
  wanted = parameter_shapes(folder.architecture, config.model.pooling.pooler)
  if lacking := sorted(set(wanted) - folder.paths()):
    raise ConfigError(
      f'config.model.pooling.pooler=True: {folder.path} has no pooler '
      f'({", ".join(lacking)}): set it to False'
    )
  return folder


def _tokenizer(folder: ModelFolder, config: Config) -> Subwords:
  tokenizer = Subwords.of_folder(folder.path)
  check_vocabulary(
    len(tokenizer),
    folder.architecture,
    tokenizer.source,
    config.model.encoder.spare_rows,
  )
  return tokenizer
