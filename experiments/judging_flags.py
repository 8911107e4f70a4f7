"""Flags that say what is judged and by what."""

from absl import flags

from experiments.flags import TupleParser
from xjax.core.errors import ConfigError
from xjax.core.types import ScoreKind
from xjax.evaluate.asked import Asked, Similarity
from xjax.evaluate.score_files import JudgeFiles

flags.disclaim_key_flags()

_ASKED = Asked()
_REPLICATES = 1000  # of the bootstrap, where intervals are asked for
# Flags that change what a run is judged by.
_JUDGING = (
  *('ks', 'metrics', 'protocol', 'propensity', 'slices', 'labels'),
  *('similarity', 'rank_weights', 'alphas', 'draws', 'ci'),
)
_OF_FILES = (
  'gold',
  'train_labels',
  'filter',
  'inv_prop',
  'score_kind',
  'depth',
)
# Flags of metrics that the table by slice does not show.
_IN_FULL = (
  *('ks', 'metrics', 'propensity', 'similarity', 'rank_weights', 'inv_prop'),
)


def define_judging() -> None:
  """Defines what to judge by."""
  _tuple('ks', int, _ASKED.ks, "Cut-offs; else the run's, or 1,3,5,10.")
  _tuple('metrics', str, (), 'Metrics to print, as P,nDCG; none named: all.')
  _tuple(
    'protocol', str, _ASKED.protocols, 'Whose conventions; all: a column each.'
  )
  _tuple(
    *('propensity', float, _ASKED.propensity),
    "A and B of the formula; else the run's, or 0.55,1.5.",
  )
  _tuple(
    'slices', str, (), 'More slices: bin:1-9, level:2, a file of label ids.'
  )
  flags.DEFINE_string('labels', '', 'File of label descriptors.')
  flags.DEFINE_enum_class(
    'similarity', Similarity.NONE, Similarity, 'Of labels, for ILD.'
  )
  flags.DEFINE_string('rank_weights', '', '.npy [L, K], W of weighted@k.')
  _tuple('alphas', float, _ASKED.alphas, 'Recalls of coverage[a=...]@k.')
  _tuple('draws', int, _ASKED.draws, 'Documents drawn, of coverage[n=...]@k.')
  flags.DEFINE_bool('ci', False, 'Bootstrap intervals of every metric.')
  flags.DEFINE_integer('replicates', _REPLICATES, 'Of the bootstrap.', 2)
  flags.DEFINE_integer('seed', _ASKED.seed, 'Of its draws.', 0)


def define_files() -> None:
  """Defines which files have the predictions, and what goes with them."""
  flags.DEFINE_string('predictions', None, 'File of scores or ranked labels.')
  flags.DEFINE_string('gold', None, 'Labels of the documents.')
  flags.DEFINE_string('train_labels', None, 'Labels of those trained on.')
  flags.DEFINE_string('filter', None, 'Pairs that must not be predicted.')
  flags.DEFINE_string('inv_prop', None, 'Inverse propensities, one per line.')
  flags.DEFINE_integer('depth', None, 'Labels kept of a document, at most.', 1)
  flags.DEFINE_enum_class(
    'score_kind', None, ScoreKind, 'Of scores, if the file does not tell.'
  )


def _tuple(name: str, element: type, default: tuple, text: str) -> None:
  flags.DEFINE(
    TupleParser(element), name, tuple(default), text, serializer=_Joined()
  )


class _Joined(flags.ArgumentSerializer):
  def serialize(self, value: tuple) -> str:
    return ','.join(map(str, value))


def asked() -> Asked | None:
  """What the flags ask to be judged by; None: nothing in particular."""
  values = flags.FLAGS
  if not values.ci:
    refuse(('replicates', 'seed'), 'ci')
  if values['inv_prop'].present and values['propensity'].present:
    raise ConfigError('give one of --inv_prop and --propensity')
  if not any(values[name].present for name in _JUDGING):
    return None
  return Asked(
    ks=values.ks,
    kinds=values.metrics,
    protocols=values.protocol,
    propensity=values.propensity,
    slices=values.slices,
    labels=values.labels,
    similarity=values.similarity,
    rank_weights=values.rank_weights,
    alphas=values.alphas,
    draws=values.draws,
    replicates=values.replicates if values.ci else 0,
    seed=values.seed,
  )


def in_full() -> bool:
  """Whether the flags ask for what the table by slice does not show."""
  return any(flags.FLAGS[name].present for name in _IN_FULL)


def files() -> JudgeFiles:
  """The files that the flags name."""
  names = ('predictions', *_OF_FILES)
  return JudgeFiles(**{name: flags.FLAGS[name].value for name in names})


def refuse(names: tuple[str, ...], other: str) -> None:
  """Refuses flags that another one makes pointless.

  Raises:
    ConfigError: one of them is given.
  """
  for name in names:
    if flags.FLAGS[name].present:
      raise ConfigError(f'--{name} goes with --{other} only')


def refuse_files() -> None:
  """Refuses flags that go with files of predictions."""
  refuse(_OF_FILES, 'predictions')
