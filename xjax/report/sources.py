"""Reads a report's systems from workdirs, evaluations or prediction files."""

from collections.abc import Mapping, Sequence
import dataclasses
import json
import os
import pathlib
from typing import Any

from absl import logging

from xjax.core.errors import ConfigError, DataError
from xjax.data.files.file_set import read_json, read_mark
from xjax.data.labels import read_left_out
from xjax.judge.calibration import Calibration
from xjax.judge.files.evaluation import (
  CALIBRATION,
  JUDGED,
  MARK,
  METRICS,
  PREDICTIONS,
)
from xjax.judge.files.judged import DEPTH, JudgeFiles, read_judged
from xjax.judge.judge import INTERVALS, NOTES
from xjax.judge.metrics.slices import ALL
from xjax.judge.predictions import Predictions
from xjax.report.reference import complete_by_reference
from xjax.report.runs import SEED, JudgedRun, every_metric, protocols
from xjax.train.run_record import RunRecord
from xjax.train.workdir import Workdir

SPLITS = ('dev', 'test')  # tried in this order if no split is named
OWN = JudgeFiles('')  # no additional files are given
_WRITE_AGAIN = 'write the folder again with xjax evaluate'


def read_runs(
  arguments: Sequence[str],
  split: str = '',
  names: Sequence[str] = (),
  files: JudgeFiles = OWN,
  depth: int = DEPTH,
) -> list[JudgedRun]:
  """Reads workdirs, folders of an evaluation, and files of predictions.

  Labels that are left out of judging are not in the predictions. By default,
  `split` is the first of SPLITS that all workdirs have, and `names`, one per
  argument, are those of folders or files. The content of `files` (gold,
  training labels etc.) replaces that of prediction files; fields that are still
  missing are taken from another system (see complete_by_reference). Of a score
  file, `depth` labels are kept per document.

  A ConfigError says that the number of names is wrong, that a split does not
  exist, or that `files` are given for workdirs only. A DataError says that a
  path is none of these, that a file is damaged, that no argument has gold, or
  that no system has a label of files.leave_out.
  """
  if names and len(names) != len(arguments):
    raise ConfigError(
      f'--names: {len(names)} names for {len(arguments)} systems'
    )
  paths = [pathlib.Path(os.path.expanduser(a)).absolute() for a in arguments]
  workdirs = [path for path in paths if _is_workdir(path)]
  if len(workdirs) == len(paths):
    _check_no_files(files)
  split = split or _common_split(workdirs)
  runs = [
    _read(path, split, name, files, depth)
    for path, name in zip(paths, names or map(_name_of, paths))
  ]
  runs = complete_by_reference([run.of_judged_labels() for run in runs])
  runs = _share_dropped(runs)
  ids = read_left_out(files.leave_out, '--leave_out')
  if ids and not set(ids) & set(runs[0].predictions.dropped):
    raise DataError(
      f'--leave_out={files.leave_out}: no system has any of these labels; give '
      'the file that belongs to the systems'
    )
  return runs


def _share_dropped(runs: Sequence[JudgedRun]) -> list[JudgedRun]:
  """Tells all runs which labels some of them leave out."""
  # A system that never had these labels may be judged by a hierarchy that has
  # them as concepts.
  dropped = {id_ for run in runs for id_ in run.predictions.dropped}
  return [
    dataclasses.replace(
      run,
      predictions=dataclasses.replace(
        run.predictions,
        dropped=sorted(dropped.difference(run.predictions.labels)),
      ),
    )
    for run in runs
  ]


def _check_no_files(files: JudgeFiles) -> None:
  for field in dataclasses.fields(files):
    if getattr(files, field.name) != getattr(OWN, field.name):
      # The flag --labels has another meaning: a file of descriptors.
      name = 'label_order' if field.name == 'labels' else field.name
      instead = 'remove the flag'
      if name == 'leave_out':
        instead = (
          'judge each workdir by xjax evaluate --leave_out, and give the '
          'folders that it writes'
        )
      raise ConfigError(
        f'--{name} is only for files of predictions, but all systems are '
        f'workdirs; {instead}'
      )


def _is_workdir(path: pathlib.Path) -> bool:
  return Workdir.at(path).config.exists()


def _in_workdir(folder: pathlib.Path) -> bool:
  return folder.parent.name == 'eval' and _is_workdir(folder.parent.parent)


def _common_split(workdirs: Sequence[pathlib.Path]) -> str:
  for split in SPLITS:
    if all((Workdir.at(w).evaluation(split)).is_dir() for w in workdirs):
      return split
  judged = '; '.join(f'{w}: {_splits_of(w)}' for w in workdirs)
  raise ConfigError(
    f'no split was judged in every workdir ({judged}); judge the same split in '
    'each workdir with xjax evaluate --workdir=DIR --split=NAME'
  )


def _splits_of(workdir: pathlib.Path) -> str:
  splits = sorted(p.name for p in (workdir / 'eval').glob('*') if p.is_dir())
  return ', '.join(splits) or 'none'


def _name_of(path: pathlib.Path) -> str:
  if path.name == PREDICTIONS:
    path = path.parent
  if _in_workdir(path):
    # The name contains the strategy, to tell several strategies of a run apart.
    _, dot, strategy = path.name.partition('.')
    return f'{path.parent.parent.name}{dot}{strategy}'
  return path.name if path.is_dir() else path.name.partition('.')[0]


def _read(
  path: pathlib.Path, split: str, name: str, files: JudgeFiles, depth: int
) -> JudgedRun:
  if _is_workdir(path):
    return _read_workdir(Workdir.at(path), split, name)
  folder = path if path.is_dir() else path.parent
  file = folder / PREDICTIONS if path.is_dir() else path
  if not file.is_file():
    raise DataError(
      f'{path}: neither a workdir (a folder with config.json), nor a folder '
      f'with {PREDICTIONS}, nor a file of predictions'
    )
  predictions, weights_L = read_judged(
    dataclasses.replace(files, predictions=file, may_lack=True), depth
  )
  run = JudgedRun(name, path, '', None, {}, predictions, weights_L=weights_L)
  # Saved metrics are valid only if no additional files change what is judged.
  judged = file.name == PREDICTIONS and (folder / METRICS).is_file()
  if not judged or files != OWN:
    return run
  if not (folder / MARK).is_file() and not _in_workdir(folder):
    logging.info(
      '%s: %s is not used, because there is no %s; the predictions are judged '
      'again',
      folder,
      METRICS,
      MARK,
    )
    return run
  facts = read_mark(folder / MARK, _WRITE_AGAIN)
  # The saved ECE is that of the run's calibrated probabilities.
  if _in_workdir(folder):
    judged, home = folder.name, Workdir.at(folder.parent.parent)
    calibration = _calibration(home, facts.get('step'))
  elif judged := str(facts.get(JUDGED, '')):
    calibration = Calibration.load(folder / CALIBRATION)
  else:
    calibration = None
  run = dataclasses.replace(run, split=judged, calibration=calibration)
  return _add_metrics(run, folder / METRICS)


def _read_workdir(home: Workdir, split: str, name: str) -> JudgedRun:
  folder = home.evaluation(split)
  if not (folder / PREDICTIONS).is_file():
    raise ConfigError(
      f'{home.path}: split {split!r} was not judged (judged splits: '
      f'{_splits_of(home.path)}); judge it with xjax evaluate '
      f'--workdir={home.path} --split={split}'
    )
  judged = read_mark(
    home.judged(split),
    'judge the split again with xjax evaluate '
    f'--workdir={home.path} --split={split.partition(".")[0]}',
  )
  space = home.label_space()
  run = JudgedRun(
    name=name,
    path=home.path,
    split=split,
    config={SEED: None, **read_json(home.config)},
    metrics={},
    predictions=Predictions.load(folder / PREDICTIONS),
    labels=space.labels,
    concepts=space.concepts,
    history=read_history(home.path / 'metrics.jsonl'),
    calibration=_calibration(home, judged.get('step')),
    record=RunRecord.read(home),
  )
  return _add_metrics(run, folder / METRICS)


def _calibration(home: Workdir, step: int | None) -> Calibration | None:
  if not home.calibration.is_file():
    return None
  calibration = Calibration.load(home.calibration)
  same = calibration.step == step
  return calibration if same and not calibration.reason else None


def read_history(path: pathlib.Path) -> tuple[dict[str, Any], ...]:
  """Returns the complete records of a metrics.jsonl; () if there is no file."""
  if not path.is_file():
    return ()
  records = []
  for line in path.read_text('utf-8', errors='replace').splitlines():
    try:
      record = json.loads(line)
    except (ValueError, RecursionError):
      # The process was killed while it wrote the line; the resumed run removes
      # the line.
      continue
    if isinstance(record, dict):
      records.append(record)
  return tuple(records)


def _add_metrics(run: JudgedRun, path: pathlib.Path) -> JudgedRun:
  """Adds a metrics.json, which must belong to the predictions of the run."""
  metrics = read_json(path)
  try:
    wrong = _fault_of(metrics, len(run.predictions))
  except (AttributeError, KeyError, TypeError, ValueError) as error:
    wrong = f'a field is missing or has a wrong type ({error})'
  if wrong:
    raise DataError(
      f'{path}: {wrong}; write the metrics and {PREDICTIONS} in the same '
      'folder again with xjax evaluate'
    )
  return dataclasses.replace(run, metrics=metrics)


def _fault_of(metrics: Mapping[str, Any], n_docs: int) -> str:
  slices = [metrics[protocol] for protocol in protocols(metrics)]
  if not slices or any(ALL not in values for values in slices):
    return f'the metrics have no slice {ALL!r}'
  counts = {x['n_docs'] + x['n_skipped'] for s in slices for x in s.values()}
  for protocol, name, metric, value in every_metric(metrics):
    if not isinstance(value, int | float | None):
      raise TypeError(f'{protocol}, {name}, {metric}: {value!r}')
  for name, reasons in metrics.get(NOTES, {}).items():
    for topic, reason in reasons.items():
      if not isinstance(reason, str):
        raise TypeError(f'{NOTES}, {name}, {topic}: {reason!r}')
  intervals = every_metric(metrics.get(INTERVALS, {}))
  for protocol, name, metric, (low, high) in intervals:
    value = metrics[protocol][name][metric]
    if not low <= value <= high:
      return (
        f'{metric} of {name} is {value}, outside of its interval '
        f'[{low}, {high}]'
      )
  if counts != {n_docs}:
    judged = ', '.join(map(str, sorted(counts)))
    return f'metrics of {judged} documents, but there are {n_docs}'
  return ''
