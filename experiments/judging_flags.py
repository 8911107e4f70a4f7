"""Flags that say what is judged and by what."""

from collections.abc import Iterable
from typing import Any

from absl import flags

from experiments.flags import TupleParser
from xjax.core.errors import ConfigError
from xjax.core.types import ScoreKind
from xjax.judge.comparison_plan import ComparisonPlan
from xjax.judge.files.judged import JudgeFiles
from xjax.judge.request import JudgeRequest, Similarity

flags.disclaim_key_flags()

_ASKED = JudgeRequest()
# Of the bootstrap, where it is asked for.
_REPLICATES = ComparisonPlan.replicates
# Flags that change what a run is judged by -> fields of JudgeRequest.
_JUDGING = {
  'ks': 'ks',
  'metrics': 'kinds',
  'protocol': 'protocols',
  'propensity': 'propensity',
  'slices': 'slices',
  'labels': 'labels',
  'similarity': 'similarity',
  'rank_weights': 'rank_weights',
  'alphas': 'alphas',
  'draws': 'draws',
}
# Flags of what goes with predictions -> fields of JudgeFiles.
_OF_FILES = {
  'gold': 'gold',
  'train_labels': 'train_labels',
  'filter': 'filter',
  'inv_prop': 'inv_prop',
  'label_order': 'labels',
  'score_kind': 'score_kind',
  'depth': 'depth',
}
# Flags of metrics that the table by slice does not show.
_IN_FULL = (
  *('ks', 'metrics', 'propensity', 'inv_prop', 'similarity', 'rank_weights'),
  *('alphas', 'draws'),
)


def define_judging() -> None:
  """Defines what to judge by."""
  _tuple('metrics', str, (), 'Metrics to print, as P,nDCG; none named: all.')
  flags.DEFINE_enum_class(
    'similarity', Similarity.NONE, Similarity, 'Of labels, for ILD.'
  )
  flags.DEFINE_string('rank_weights', '', '.npy [L, K], W of weighted@k.')
  _tuple('alphas', float, _ASKED.alphas, 'Recalls of coverage[a=...]@k.')
  _tuple('draws', int, _ASKED.draws, 'Documents drawn, of coverage[n=...]@k.')
  define_conventions()


def define_conventions() -> None:
  """Defines what all metrics have in common, and whether with intervals."""
  _tuple('ks', int, _ASKED.ks, "Cut-offs; else the run's, or 1,3,5,10.")
  _tuple(
    'protocol', str, _ASKED.protocols, 'Whose conventions; all: a column each.'
  )
  flags.DEFINE_bool('ci', False, 'Bootstrap intervals of every metric.')
  define_shared()


def define_shared() -> None:
  """Defines what a comparison takes as well: slices, weights of labels."""
  _tuple(
    *('propensity', float, _ASKED.propensity),
    "A and B of the formula; else the run's, or 0.55,1.5.",
  )
  _tuple(
    'slices', str, (), 'More slices: bin:1-9, level:2, a file of label ids.'
  )
  flags.DEFINE_string('labels', '', 'File of label descriptors.')
  flags.DEFINE_integer('replicates', _REPLICATES, 'Of the bootstrap.', 2)
  flags.DEFINE_integer('seed', _ASKED.seed, 'Of its draws.', 0)


def define_files() -> None:
  """Defines which file has the predictions, and what goes with it."""
  flags.DEFINE_string('predictions', None, 'File of scores or ranked labels.')
  define_companions()


def define_companions() -> None:
  """Defines what goes with files of predictions."""
  flags.DEFINE_string(
    'gold', None, 'Labels of the documents, whatever predictions say of them.'
  )
  flags.DEFINE_string('train_labels', None, 'Those of training, likewise.')
  flags.DEFINE_string('filter', None, 'Pairs that must not be predicted.')
  flags.DEFINE_string('inv_prop', None, 'Inverse propensities, one per line.')
  flags.DEFINE_string('label_order', None, 'Label ids by column, one per line.')
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


def asked() -> JudgeRequest | None:
  """What the flags ask to be judged by; None: nothing in particular."""
  values = flags.FLAGS
  if not values.ci:
    refuse(('replicates', 'seed'), 'ci')
  defined = {name: field for name, field in _JUDGING.items() if name in values}
  if not values.ci and not any(values[name].present for name in defined):
    return None
  return JudgeRequest(
    **{field: values[name].value for name, field in defined.items()},
    replicates=values.replicates if values.ci else 0,
    seed=values.seed,
  )


def in_full() -> bool:
  """Whether the flags ask for what the table by slice does not show."""
  return any(flags.FLAGS[name].present for name in _IN_FULL)


def shared() -> dict[str, Any]:
  """What a comparison takes as well, by name."""
  names = 'propensity', 'slices', 'labels', 'replicates', 'seed'
  return {name: flags.FLAGS[name].value for name in names}


def files() -> JudgeFiles:
  """The files that the flags name; no predictions where that is no flag."""
  values = flags.FLAGS
  if values['inv_prop'].present and values['propensity'].present:
    raise ConfigError('give one of --inv_prop and --propensity')
  path = values['predictions'].value if 'predictions' in values else ''
  given = {field: values[name].value for name, field in _OF_FILES.items()}
  return JudgeFiles(path, **given)


def refuse(names: Iterable[str], other: str) -> None:
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
