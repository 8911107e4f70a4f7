"""Reads the dense layer of a masked language model from a model's folder."""

import numpy as np

from xjax.core.errors import DataError
from xjax.networks.pretrained.model_folder import ModelFolder
from xjax.networks.pretrained.weight_files import WeightFiles

# Our names of the parameters, and their names in the folders of BERT (also the
# old spelling) and RoBERTa.
_NAMES = {
  'dense/kernel': ('transform.dense.weight', 'dense.weight'),
  'dense/bias': ('transform.dense.bias', 'dense.bias'),
  'norm/scale': (
    'transform.LayerNorm.weight',
    'transform.LayerNorm.gamma',
    'layer_norm.weight',
  ),
  'norm/bias': (
    'transform.LayerNorm.bias',
    'transform.LayerNorm.beta',
    'layer_norm.bias',
  ),
}
_PREFIXES = 'cls.predictions.', 'lm_head.'


def language_transform(folder: ModelFolder) -> dict[str, np.ndarray] | None:
  """Returns the layer between the last state and the vectors of words.

  The arrays are float32, by path: dense/kernel, dense/bias, norm/scale and
  norm/bias. The result is None if the folder has no head of a masked language
  model.

  Raises:
    DataError: a file is damaged, or the head has another size than the encoder.
  """
  files = WeightFiles.of(folder.path)
  names = {
    path: next(
      (
        prefix + name
        for prefix in _PREFIXES
        for name in endings
        if prefix + name in files.headers
      ),
      None,
    )
    for path, endings in _NAMES.items()
  }
  if None in names.values():
    return None
  tensors = files.read(names.values())
  arrays, dim = {}, folder.architecture.dim
  for path, name in names.items():
    array = np.asarray(tensors[name]).astype(np.float32)
    shape = (dim, dim) if path == 'dense/kernel' else (dim,)
    if array.shape != shape or not np.isfinite(array).all():
      raise DataError(
        f'{files.where}: {name} must have the shape {list(shape)} and only '
        'finite values'
      )
    arrays[path] = array
  arrays['dense/kernel'] = np.ascontiguousarray(arrays['dense/kernel'].T)
  return arrays
