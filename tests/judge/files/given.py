"""Files of a test, by what they are for."""

from tests.fixtures.error_text import error_text
from xjax.judge.files.judge_files import JudgeFiles, read_judged

FIELDS = {
  'scores': 'predictions',
  'gold': 'gold',
  'train': 'train_labels',
  'filter': 'filter',
  'weights': 'inv_prop',
  'labels': 'labels',
}


def given(files, *names, **fields) -> JudgeFiles:
  """Scores and the named files, for judging."""
  paths = {FIELDS[name]: files[name] for name in ('scores', *names)}
  return JudgeFiles(**paths, **fields)


def read(files, *names, **fields):
  return read_judged(given(files, *names, **fields))


def refused(files, *names, **fields) -> str:
  return error_text(
    read, files, *names, folder=files['scores'].parent, **fields
  )
