"""Exports the encoder of a finished run for the transformers library."""

from collections.abc import Mapping, Sequence
import json
import os

import jax
import numpy as np

from xjax.core.errors import ConfigError
from xjax.data.text.subwords import Subwords
from xjax.networks.pretrained.architecture import Architecture
from xjax.networks.pretrained.model_folder import write_model_folder
from xjax.run.open_run import OpenRun, open_run
from xjax.train.parameters import by_path
from xjax.train.workdir import read_json

_ENCODER, _POOLING = 'encoder/', 'pooling/'
# The names of two special tokens in BERT, RoBERTa and XLNet. These tokens are
# found by name, because tokenizer.json does not say which tokens they are.
_UNKNOWN = ('[UNK]', '<unk>')
_MASK = ('[MASK]', '<mask>')


def export_encoder(
  workdir: str | os.PathLike, output: str | os.PathLike, step: int | None = None
) -> OpenRun:
  """Writes the encoder of a run to a folder that transformers can load.

  The folder, which must not exist, gets config.json, model.safetensors and the
  files of the tokenizer. The weights are those of a checkpoint, with a trained
  pooler, if any. Without one, transformers warns that the pooler is newly
  initialized. For XLNet, it warns so about mask_emb, which encodes no text.

  Returns the run. ConfigError: it has no such encoder.
  """
  run = open_run(workdir, step)
  config, folder = run.config, run.workdir
  if not (config.data.tokens.pretrained and config.model.has_steps):
    raise ConfigError(
      f'{folder.path}: this run has no encoder of the BERT family or XLNet; '
      'only such an encoder can be exported for transformers. If a stage of '
      'the run has one, give the folder of the stage, which is in stages/'
    )
  wanted = (_ENCODER, _POOLING) if config.model.pooling.pooler else (_ENCODER,)
  params = {
    path: np.asarray(jax.device_get(x))
    for path, x in by_path(run.scorer.params).items()
    if path.startswith(wanted)
  }
  write_model_folder(
    output,
    read_json(folder.encoder),
    params,
    tokenizer_files(folder.subwords(), folder.architecture()),
  )
  return run


def tokenizer_files(
  tokenizer: Subwords, architecture: Architecture
) -> dict[str, str]:
  """Returns the files that transformers' tokenizer needs, by name."""
  settings = json.loads(tokenizer.text)
  tokens = {token['id']: token['content'] for token in settings['added_tokens']}
  cls, sep = tokenizer.before[:1], tokenizer.after[-1:]
  if architecture.summary_last:
    sep, cls = tokenizer.after[-2:-1], tokenizer.after[-1:]
  special = {
    'pad_token': settings['padding']['pad_token'],
    'unk_token': _first(_UNKNOWN, tokens),
    'cls_token': tokens.get(*cls),
    'sep_token': tokens.get(*sep),
    'mask_token': _first(_MASK, tokens),
  }
  # This class uses tokenizer.json unchanged. The tokenizer classes for BERT may
  # change texts to lower case a second time.
  config = {
    'tokenizer_class': 'PreTrainedTokenizerFast',
    'model_input_names': ['input_ids', 'token_type_ids', 'attention_mask'],
    **{name: token for name, token in special.items() if token is not None},
  }
  if architecture.max_tokens is not None:
    config['model_max_length'] = architecture.max_tokens
  if architecture.summary_last:
    # transformers reads the summary of a text from the end of a padded row.
    config['padding_side'] = 'left'
  return {
    'tokenizer.json': tokenizer.text,
    'tokenizer_config.json': json.dumps(config, indent=2, ensure_ascii=False),
  }


def _first(names: Sequence[str], tokens: Mapping[int, str]) -> str | None:
  return next((name for name in names if name in tokens.values()), None)
