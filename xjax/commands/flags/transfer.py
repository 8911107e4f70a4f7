"""Defines the flags that say to what form a corpus is transferred."""

import typing

from absl import flags

from xjax.commands.flags.config import TupleParser
from xjax.commands.flags.required import require
from xjax.core.errors import ConfigError

if typing.TYPE_CHECKING:
  from xjax.run.transfer.request import TransferRequest

TITLE = 'The new corpus'

_CLUSTERED = 'branching', 'prefix', 'max_features', 'seed'
# Flag -> the value of --to with which the flag works.
_USERS = {'labels': 'flat', **dict.fromkeys(_CLUSTERED, 'hierarchical')}


def number(text: str) -> int:
  """Returns a number of clusters; ValueError if the text is no whole number."""
  try:
    return int(text)
  except ValueError as error:
    raise ValueError(
      f'{text!r} is no whole number; give numbers of clusters only, such as '
      '256,8: how many labels are below a cluster of the last level follows '
      'from the number of labels'
    ) from error


def define() -> None:
  """Defines --to, --output and the flags of each form."""
  flags.DEFINE_enum(
    'to', None, ('flat', 'hierarchical', 'original'), 'Form of the new corpus.'
  )
  flags.DEFINE_string('output', None, 'Folder to write.')
  flags.DEFINE_enum(
    'labels',
    'all',
    ('all', 'closed', 'leaves'),
    'For --to=flat: `all` keeps all labels. `closed` also adds the ancestors '
    "of a document's labels to the document. `leaves` keeps only labels "
    'without children.',
  )
  flags.DEFINE(
    TupleParser(number),
    'branching',
    (),
    'For --to=hierarchical: number of clusters below a node, for each level.',
  )
  flags.DEFINE_string(
    'prefix', 'meta_', 'For --to=hierarchical: beginning of meta-label ids.'
  )
  flags.DEFINE_integer(
    'max_features',
    1000,
    'For --to=hierarchical: number of features to keep for each label when '
    'labels are clustered; 0 keeps all.',
    0,
  )
  flags.DEFINE_integer(
    'seed', 0, 'For --to=hierarchical: seed of the clustering.', 0
  )
  flags.DEFINE_enum(
    'format', 'jsonl', ('jsonl', 'htc'), 'Format of the new corpus.'
  )
  flags.DEFINE_bool('gzip', False, 'Gzip the JSON lines.')
  flags.DEFINE_list(
    'splits', [], 'Splits to transfer, besides train, dev and test.'
  )
  require('to', 'give flat, hierarchical or original')
  require('output', 'give the folder to write')


def requested() -> 'TransferRequest':
  """Returns the transfer that the flags request."""
  values = flags.FLAGS
  for name, target in _USERS.items():
    if values[name].present and values.to != target:
      raise ConfigError(f'--{name} works only with --to={target}')
  from xjax.run.transfer.request import (
    Form,
    KeptLabels,
    Target,
    TransferRequest,
  )

  return TransferRequest(
    target=Target(values.to),
    output=values.output,
    kept=KeptLabels(values.labels),
    branching=values.branching,
    prefix=values.prefix,
    max_features=values.max_features,
    seed=values.seed,
    form=Form(values.format),
    splits=tuple(values.splits),
    gzip=values.gzip,
  )
