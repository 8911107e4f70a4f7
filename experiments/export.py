r"""Writes the encoder of a finished run as a Hugging Face folder.

  python -m experiments.export --workdir=DIR --output=FOLDER

FOLDER gets config.json, model.safetensors and the tokenizer, as of the best
checkpoint: transformers loads it, and so does --config.model.encoder.folder of
another run. The pooling and the head are not in it, but for a pooler that was
trained (config.model.pooling.pooler).
"""

from absl import flags as absl_flags

from experiments import flags
from xjax.run.export import export_encoder

_WORKDIR = absl_flags.DEFINE_string(
  'workdir', None, 'Folder of the run.', required=True
)
_OUTPUT = absl_flags.DEFINE_string(
  'output', None, 'Folder to write; not there yet.', required=True
)


def main() -> None:
  """Runs what the flags say."""
  run = export_encoder(_WORKDIR.value, _OUTPUT.value)
  print(f'{_OUTPUT.value}: the encoder of {_WORKDIR.value}, step {run.step}')


if __name__ == '__main__':
  flags.run(main)
