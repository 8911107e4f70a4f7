"""Exports the encoder of a finished run for the transformers library."""

from collections.abc import Mapping, Sequence
import json
import os

import jax
import numpy as np

from xjax.core.errors import ConfigError
from xjax.data.text.subwords import Subwords
from xjax.models.contract import Run, load_config
from xjax.models.scorer import Scorer
from xjax.networks.pretrained.architecture import Architecture
from xjax.networks.pretrained.model_folder import write_model_folder
from xjax.run.open_run import open_run
from xjax.train.parameters import by_path
from xjax.train.workdir import read_json

_ENCODER, _POOLING = 'encoder/', 'pooling/'
# The names of two special tokens in BERT, RoBERTa and XLNet. These tokens are
# found by name, because tokenizer.json does not say which tokens they are.
_UNKNOWN = ('[UNK]', '<unk>')
_MASK = ('[MASK]', '<mask>')


def export_encoder(
  workdir: str | os.PathLike,
  output: str | os.PathLike,
  step: int | None = None,
) -> tuple[Run, Scorer]:
  """Writes the encoder of a run to a folder that transformers can load.

  The folder, which must not exist, gets config.json, model.safetensors and the
  files of the tokenizer. The weights are those of a checkpoint, with a trained
  pooler, if any. Without one, transformers warns that the pooler is newly
  initialized. For XLNet, it warns so about mask_emb, which encodes no text.

  Without a pretrained encoder of its own, the run has one stage with one; this
  is written. Returns the run and the model whose encoder is written.
  """
  opened = open_run(workdir, step)
  run, scorer = _only_encoder(opened.run, opened.scorer)
  wanted = (
    (_ENCODER, _POOLING) if run.config.model.pooling.pooler else (_ENCODER,)
  )
  params = {
    path: np.asarray(jax.device_get(x))
    for path, x in by_path(scorer.params).items()
    if path.startswith(wanted)
  }
  write_model_folder(
    output,
    read_json(run.folder.encoder),
    params,
    tokenizer_files(run.folder.subwords(), run.folder.architecture()),
  )
  return run, scorer


def _only_encoder(run: Run, scorer: Scorer) -> tuple[Run, Scorer]:
  """Returns the only model with a pretrained encoder of a run."""
  models = _encoders(run, scorer)
  if not models:
    raise ConfigError(
      f'{run.folder.path}: this run has no encoder of the BERT family or '
      'XLNet; only such an encoder can be exported for transformers'
    )
  if len(models) > 1:
    folders = ', '.join(str(own.folder.path) for own, _ in models)
    raise ConfigError(
      f'{run.folder.path}: several stages of this run have an encoder; export '
      f'the encoder of one of these folders: {folders}'
    )
  return models[0]


def _encoders(run: Run, scorer: Scorer) -> list[tuple[Run, Scorer]]:
  """Returns a model if its encoder is pretrained, else those of its stages."""
  if run.config.data.tokens.pretrained and run.config.model.has_steps:
    return [(run, scorer)]
  found = []
  for name, stage in scorer.stages.items():
    config = load_config(run.folder.stage(name).config)
    found += _encoders(run.sub(name, config), stage)
  return found


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
