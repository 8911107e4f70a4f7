"""The encoder of a finished run as a folder that transformers loads."""

from collections.abc import Mapping, Sequence
import json
import os

import jax
import numpy as np

from xjax.core.errors import ConfigError
from xjax.data.text.subwords import Subwords
from xjax.run.fit import load
from xjax.run.predictor import Predictor
from xjax.score.pretrained.architecture import Architecture
from xjax.score.pretrained.model_folder import write_model_folder
from xjax.train.parameters import by_path
from xjax.train.workdir import read_json

_ENCODER, _POOLING = 'encoder/', 'pooling/'
# Names that special tokens have, where tokenizer.json does not say which is
# which: BERT's and RoBERTa's.
_UNKNOWN = ('[UNK]', '<unk>')
_MASK = ('[MASK]', '<mask>')


def export_encoder(
  workdir: str | os.PathLike, output: str | os.PathLike
) -> Predictor:
  """Writes config.json, model.safetensors and the tokenizer of a run.

  Of its best checkpoint. A trained pooler is written as well; without one
  transformers' models say that theirs is new.

  Args:
    workdir: of the run.
    output: the folder to write, which must not be there yet.

  Returns:
    The run.

  Raises:
    ConfigError: its model has no pretrained encoder.
    DataError: there is no run, or a file of it is missing or damaged.
    WriteError: the folder cannot be written, or is there.
  """
  run = load(workdir)
  if not run.config.data.tokens.pretrained:
    raise ConfigError(
      f'{run.workdir.path}: this run has no encoder of the BERT family, and '
      'only such are written for transformers'
    )
  wanted = (
    (_ENCODER, _POOLING) if run.config.model.pooling.pooler else (_ENCODER,)
  )
  params = {
    path: np.asarray(jax.device_get(x))
    for path, x in by_path(run.scorer.params).items()
    if path.startswith(wanted)
  }
  write_model_folder(
    output,
    read_json(run.workdir.encoder),
    params,
    tokenizer_files(run.inputs.vocab, run.workdir.architecture()),
  )
  return run


def tokenizer_files(
  tokenizer: Subwords, architecture: Architecture
) -> dict[str, str]:
  """What transformers' AutoTokenizer reads, name -> content.

  Args:
    tokenizer: to be the same there.
    architecture: of its encoder, for the longest text.
  """
  settings = json.loads(tokenizer.text)
  tokens = {token['id']: token['content'] for token in settings['added_tokens']}
  special = {
    'pad_token': settings['padding']['pad_token'],
    'unk_token': _first(_UNKNOWN, tokens),
    'cls_token': tokens.get(tokenizer.before[0]),
    'sep_token': tokens.get(tokenizer.after[-1]),
    'mask_token': _first(_MASK, tokens),
  }
  # The class that takes tokenizer.json as it is: those of BERT's name may
  # change texts to lower case once more.
  config = {
    'tokenizer_class': 'PreTrainedTokenizerFast',
    'model_max_length': architecture.max_tokens,
    'model_input_names': ['input_ids', 'token_type_ids', 'attention_mask'],
    **{name: token for name, token in special.items() if token is not None},
  }
  return {
    'tokenizer.json': tokenizer.text,
    'tokenizer_config.json': json.dumps(config, indent=2, ensure_ascii=False),
  }


def _first(names: Sequence[str], tokens: Mapping[int, str]) -> str | None:
  return next((name for name in names if name in tokens.values()), None)
