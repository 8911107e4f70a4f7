r"""Writes the encoder of a finished run as a Hugging Face folder.

  xjax export --workdir=DIR --output=FOLDER

FOLDER gets config.json, the tokenizer, and model.safetensors with the weights
of the best checkpoint. The library transformers can load FOLDER; another run
loads FOLDER with --config.model.encoder.folder. The head is not written. The
pooling is written only if it is a trained pooler (config.model.pooling.pooler).
If only a stage of a run has such an encoder, DIR is RUN/stages/NAME.
"""

from absl import flags

from xjax.commands.flags import checkpoint, required
from xjax.core.console import show

_WORKDIR, _STEP = checkpoint.define(required=True)
_OUTPUT = flags.DEFINE_string(
  'output', None, 'Folder to write; it must not exist yet.'
)
required.require('output', 'give the folder to write')


def main() -> None:
  """Writes the encoder of the run to the folder."""
  from xjax.run.export_encoder import export_encoder

  run = export_encoder(_WORKDIR.value, _OUTPUT.value, _STEP.value)
  show(f'{_OUTPUT.value}: the encoder of {run.workdir.path}, step {run.step}')
