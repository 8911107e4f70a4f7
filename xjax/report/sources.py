"""Reading what a report is of: workdirs, evaluations, files of predictions."""

from collections.abc import Mapping, Sequence
import dataclasses
import json
import os
import pathlib
from typing import Any

from xjax.core.errors import ConfigError, DataError
from xjax.judge.calibration import Calibration
from xjax.judge.files.judged import DEPTH, JudgeFiles, read_judged
from xjax.judge.judge import INTERVALS
from xjax.judge.metrics.slices import ALL
from xjax.judge.predict import METRICS, PREDICTIONS
from xjax.judge.predictions import Predictions
from xjax.report.lent import lend
from xjax.report.runs import SEED, JudgedRun, every_metric, protocols
from xjax.train.workdir import Workdir, read_json

SPLITS = ('dev', 'test')  # which is taken where none is named
OWN = JudgeFiles('')  # files have what they need: nothing goes with them


def read_runs(
  arguments: Sequence[str],
  split: str = '',
  names: Sequence[str] = (),
  files: JudgeFiles = OWN,
  depth: int = DEPTH,
) -> list[JudgedRun]:
  """Reads workdirs, folders of an evaluation, and files of predictions.

  Args:
    arguments: paths.
    split: of the workdirs; '': the first of SPLITS that all have.
    names: of the runs, each for one argument; (): the folders' or files'.
    files: what goes with the files of predictions, and replaces what they
      have of it; what they lack then, others of the arguments lend.
    depth: labels kept of a document, of files of scores; as read_judged.

  Returns:
    With gold; those that were judged with their metrics, others without.

  Raises:
    ConfigError: fewer or more names than arguments; no such split; files
      beside workdirs alone.
    DataError: a path is none of these, a file is damaged, or there is no gold.
  """
  if names and len(names) != len(arguments):
    raise ConfigError(
      f'--names: {len(names)} names for {len(arguments)} systems'
    )
  paths = [pathlib.Path(os.path.expanduser(a)).absolute() for a in arguments]
  workdirs = [path for path in paths if _is_workdir(path)]
  if len(workdirs) == len(paths):
    _refuse(files)
  split = split or _common_split(workdirs)
  runs = [
    _read(path, split, name, files, depth)
    for path, name in zip(paths, names or map(_name_of, paths))
  ]
  return lend(runs)


def _refuse(files: JudgeFiles) -> None:
  """Refuses files that nothing here would be read with."""
  for field in dataclasses.fields(files):
    if getattr(files, field.name) != getattr(OWN, field.name):
      # That flag is a file of descriptors.
      name = 'label_order' if field.name == 'labels' else field.name
      raise ConfigError(
        f'--{name} goes with files of predictions; a workdir has its own'
      )


def _is_workdir(path: pathlib.Path) -> bool:
  return Workdir.at(path).config.exists()


def _common_split(workdirs: Sequence[pathlib.Path]) -> str:
  for split in SPLITS:
    if all((Workdir.at(w).evaluation(split)).is_dir() for w in workdirs):
      return split
  here = '; '.join(f'{w}: {_splits_of(w)}' for w in workdirs)
  raise ConfigError(
    f'no split was judged in every workdir ({here}); experiments.evaluate '
    '--workdir=DIR --split=NAME judges one'
  )


def _splits_of(workdir: pathlib.Path) -> str:
  found = sorted(p.name for p in (workdir / 'eval').glob('*') if p.is_dir())
  return ', '.join(found) or 'none'


def _name_of(path: pathlib.Path) -> str:
  """Of the folder, where the file's own name says nothing."""
  if path.name == PREDICTIONS:
    path = path.parent
  if path.parent.name == 'eval' and _is_workdir(path.parent.parent):
    # Several strategies of a run may be compared.
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
    dataclasses.replace(files, predictions=file), depth
  )
  run = JudgedRun(name, path, '', None, {}, predictions, weights_L=weights_L)
  # An evaluation is taken as it was judged, unless it is to be read otherwise.
  judged = file.name == PREDICTIONS and (folder / METRICS).is_file()
  return _judged(run, folder / METRICS) if judged and files == OWN else run


def _read_workdir(home: Workdir, split: str, name: str) -> JudgedRun:
  folder = home.evaluation(split)
  if not (folder / PREDICTIONS).is_file():
    raise ConfigError(
      f'{home.path}: split {split!r} was not judged here, but: '
      f'{_splits_of(home.path)}; experiments.evaluate --workdir={home.path} '
      f'--split={split} judges it'
    )
  run = JudgedRun(
    name=name,
    path=home.path,
    split=split,
    config={SEED: None, **read_json(home.config)},
    metrics={},
    predictions=Predictions.load(folder / PREDICTIONS),
    labels=home.label_space().labels,
    history=read_history(home.path / 'metrics.jsonl'),
    calibration=_calibration(home, split),
  )
  return _judged(run, folder / METRICS)


def _calibration(home: Workdir, split: str) -> Calibration | None:
  """That of the checkpoint that was judged, if one could be fitted."""
  if not home.calibration.is_file() or not home.judged(split).is_file():
    return None
  found = Calibration.load(home.calibration)
  same = found.step == read_json(home.judged(split)).get('step')
  return found if same and not found.reason else None


def read_history(path: pathlib.Path) -> tuple[dict[str, Any], ...]:
  """The whole records of a metrics.jsonl; none where there is no file."""
  if not path.is_file():
    return ()
  records = []
  for line in path.read_text('utf-8', errors='replace').splitlines():
    try:
      record = json.loads(line)
    except ValueError:
      continue  # cut short by a kill; the run that goes on cuts it off
    if isinstance(record, dict):
      records.append(record)
  return tuple(records)


def _judged(run: JudgedRun, path: pathlib.Path) -> JudgedRun:
  """With the metrics of a file."""
  metrics = read_json(path)
  _check_metrics(metrics, len(run.predictions), path)
  return dataclasses.replace(run, metrics=metrics)


def _check_metrics(
  metrics: Mapping[str, Any], n_docs: int, path: pathlib.Path
) -> None:
  try:
    counts = {
      values['n_docs'] + values['n_skipped']
      for protocol in protocols(metrics)
      for values in metrics[protocol].values()
    }
    missing = [p for p in protocols(metrics) if ALL not in metrics[p]]
  except (KeyError, TypeError) as error:
    raise DataError(f'{path}: not metrics of xjax: no {error}') from error
  if missing or not counts:
    raise DataError(f'{path}: not metrics of xjax: no slice {ALL!r}')
  _check_intervals(metrics, path)
  if counts != {n_docs}:
    raise DataError(
      f'{path}: is of {", ".join(map(str, sorted(counts)))} documents, '
      f'{PREDICTIONS} beside it of {n_docs}; experiments.evaluate makes both'
    )


def _check_intervals(metrics: Mapping[str, Any], path: pathlib.Path) -> None:
  try:
    found = every_metric(metrics.get(INTERVALS, {}))
    for protocol, name, metric, (low, high) in found:
      value = metrics[protocol][name][metric]
      if not low <= value <= high:
        raise DataError(
          f'{path}: {metric} of {name}, {value}, is not within its interval '
          f'[{low}, {high}]; experiments.evaluate makes both'
        )
  except (AttributeError, KeyError, TypeError, ValueError) as error:
    raise DataError(f'{path}: its intervals are not those of xjax') from error
