"""Defines the flags that choose predictions, gold and metrics for judging."""

from collections.abc import Iterable
import typing
from typing import Any

from absl import flags

from xjax.commands.flags.config import TupleParser
from xjax.commands.flags.required import check_absent
from xjax.core.errors import ConfigError

if typing.TYPE_CHECKING:
  from xjax.judge.files.judge_files import JudgeFiles
  from xjax.judge.request import JudgeRequest

TITLE = 'Judging'

# Flags that request metrics which only the full table shows.
_METRICS = 'ks metrics propensity similarity rank_weights alphas draws'.split()
# Flags that change how a run is judged, as fields of JudgeRequest.
_JUDGING = *_METRICS, 'protocol', 'slices', 'labels'
# Flags for the use of files of predictions, as fields of JudgeFiles.
FILE_FLAGS = (
  'gold train_labels filter inv_prop label_order score_kind depth'.split()
)
# Fields that have other names than their flags.
_FIELDS = {'metrics': 'kinds', 'protocol': 'protocols', 'label_order': 'labels'}


def define_judging() -> None:
  """Defines all flags that choose what is judged, and how."""
  _tuple('metrics', 'Metrics to print, such as P,nDCG (default: all).')
  flags.DEFINE_enum(
    'similarity',
    'none',
    ('none', 'descriptors', 'co_occurrence'),
    'How the metric ILD computes the similarity of two labels.',
  )
  flags.DEFINE_string(
    'rank_weights',
    '',
    '.npy file with the weights W of the metric weighted@k: float [L, K], a '
    'weight for each of L labels at each of K ranks.',
  )
  _tuple(
    'alphas',
    'Values of `a` for the metric coverage[a=...]@k; each is a recall from 0 '
    'to 1.',
    float,
    (0.5,),
  )
  _tuple(
    'draws',
    'Values of `n` for the metric coverage[n=...]@k; each is a number of drawn '
    'documents.',
    int,
    (1000,),
  )
  define_conventions()


def define_conventions() -> None:
  """Defines the flags for cut-offs, protocols and intervals of all metrics."""
  _tuple(
    'ks',
    'Cut-offs k of metrics (default: the cut-offs of the run, or 1,3,5,10).',
    int,
  )
  _tuple(
    'protocol',
    'Protocols to judge by; `all` shows every protocol in its own column.',
    default=('xjax',),
  )
  flags.DEFINE_bool('ci', False, 'Add bootstrap intervals to every metric.')
  define_shared()


def define_shared() -> None:
  """Defines the flags that evaluate, report and compare all have."""
  _tuple(
    'propensity',
    'A and B of the propensity formula (default: the values of the run, or '
    '0.55,1.5).',
    float,
  )
  _tuple(
    'slices',
    'Additional slices, such as bin:1-9, level:2 or a file of label ids.',
  )
  flags.DEFINE_string('labels', '', 'File of label descriptors.')
  flags.DEFINE_integer('replicates', 1000, 'Number of bootstrap replicates.', 2)
  flags.DEFINE_integer('seed', 0, 'Seed of the bootstrap.', 0)


def define_files() -> None:
  """Defines --predictions and the flags for further files."""
  flags.DEFINE_string('predictions', None, 'File of scores or ranked labels.')
  define_companions()


def define_companions() -> None:
  """Defines the flags that say how files of predictions are used."""
  for name, text in {
    'gold': 'File of gold labels; used instead of gold labels in the '
    'predictions.',
    'train_labels': 'File of the labels of training documents; used instead of '
    'training counts in the predictions.',
    'filter': 'File of document-label pairs that must not be predicted.',
    'inv_prop': 'File of inverse propensities, one per line.',
    'label_order': 'File of label ids, one per line, in the order of the '
    'columns in the other files.',
  }.items():
    flags.DEFINE_string(name, None, text)
  flags.DEFINE_string(
    'leave_out',
    '',
    'File of label ids, one per line: labels that are neither predicted nor '
    'judged.',
  )
  flags.DEFINE_integer(
    'depth',
    None,
    'Maximum number of labels kept per document (default: 50, or the largest '
    'cut-off; all of a predictions.npz).',
    1,
  )
  flags.DEFINE_enum(
    'score_kind',
    None,
    ('logit', 'probability', 'margin'),
    'Meaning of the scores, if the file of predictions does not give it.',
  )


def _tuple(
  name: str, text: str, element: type = str, default: tuple = ()
) -> None:
  flags.DEFINE(TupleParser(element), name, default, text)


def judge_request(without: Iterable[str] = ()) -> 'JudgeRequest | None':
  """Returns the request of the flags but those in `without`, or None."""
  values = flags.FLAGS
  if not values.ci:
    check_absent(('replicates', 'seed'), 'ci')
  names = [x for x in _JUDGING if x in values and x not in without]
  if not values.ci and not any(values[name].present for name in names):
    return None
  from xjax.judge.request import JudgeRequest, Similarity

  fields = _fields(names)
  if 'similarity' in fields:
    fields['similarity'] = Similarity(fields['similarity'])
  return JudgeRequest(
    **fields, replicates=values.replicates if values.ci else 0, seed=values.seed
  )


def _fields(names: Iterable[str]) -> dict[str, Any]:
  return {_FIELDS.get(name, name): flags.FLAGS[name].value for name in names}


def needs_full_table() -> bool:
  """Returns whether flags request metrics that only the full table shows."""
  return any(flags.FLAGS[name].present for name in (*_METRICS, 'inv_prop'))


def comparison_options() -> dict[str, Any]:
  """Returns the values of the flags that comparisons have, by flag name."""
  return _fields(('propensity', 'slices', 'labels', 'replicates', 'seed'))


def files() -> 'JudgeFiles':
  """Returns the paths in the flags for files; '' without --predictions."""
  values = flags.FLAGS
  if values['inv_prop'].present and values['propensity'].present:
    raise ConfigError('give only one of --inv_prop and --propensity')
  from xjax.core.types import ScoreKind
  from xjax.judge.files.judge_files import JudgeFiles

  path = values['predictions'].value if 'predictions' in values else ''
  # --leave_out is for runs too, so it is not one of FILE_FLAGS.
  fields = _fields([*FILE_FLAGS, 'leave_out'])
  if kind := fields['score_kind']:
    fields['score_kind'] = ScoreKind(kind)
  return JudgeFiles(path, **fields)
