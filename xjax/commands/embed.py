r"""Writes vectors of documents and labels, computed by an encoder.

  xjax embed --config=NAME [--config.data.dir=DIR ...] --folder=ENCODER \
    --output=FOLDER

ENCODER is a pretrained encoder in Hugging Face's layout, which is not trained.
`xjax export` writes that of a run. FOLDER gets {split}.npy and {split}.ids.txt
for each split, and labels.npy and labels.ids.txt with the vectors of label
names. A model on these vectors is trained by:

  xjax train --config=frozen_features --config.data.dir=DIR \
    --config.data.tokens.dir=FOLDER --config.model.embedding.dim=384 \
    --workdir=runs/frozen

FOLDER appears when it is complete. Vectors of single words are trained by
`xjax embeddings`.
"""

from absl import flags

from xjax.commands.flags import config, required
from xjax.core.console import show

_CONFIG = config.define()
_FOLDER = flags.DEFINE_string(
  'folder',
  None,
  'Folder of a pretrained encoder, or the name of a model in the local Hugging '
  'Face cache.',
)
_MAX_TOKENS = flags.DEFINE_integer(
  'max_tokens',
  128,
  'Number of tokens that the encoder in --folder reads from the start of a '
  'text, including special tokens.',
  3,
)
_SPLITS = flags.DEFINE_list(
  'splits',
  ['train', 'dev', 'test'],
  'Splits. By default, those of train, dev and test that exist.',
)
_OUTPUT = flags.DEFINE_string(
  'output', None, 'Folder to write; it must not exist yet.'
)
required.require('output', 'give the folder to write')
required.require('folder', 'give the folder of an encoder')


def main() -> None:
  """Writes the files and says what is in them."""
  from xjax.data.tokens_config import TextVectorsConfig
  from xjax.run.vector_files import embed_corpus

  splits = _SPLITS.value if _SPLITS.present else ()
  splits = tuple(dict.fromkeys(splits))
  encoder = TextVectorsConfig(_FOLDER.value, _MAX_TOKENS.value)
  lines = embed_corpus(_CONFIG.value, encoder, _OUTPUT.value, splits)
  show('\n'.join(lines))
