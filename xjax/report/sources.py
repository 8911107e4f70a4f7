"""Reading what a report is of: workdirs, evaluations, files of predictions."""

from collections.abc import Mapping, Sequence
import dataclasses
import json
import os
import pathlib
from typing import Any

from xjax.core.errors import ConfigError, DataError
from xjax.evaluate.calibration import Calibration
from xjax.evaluate.criteria import Criteria
from xjax.evaluate.evaluator import METRICS, PREDICTIONS
from xjax.evaluate.judge import INTERVALS, judge
from xjax.evaluate.predictions import Predictions
from xjax.evaluate.score_files import JudgeFiles, read_judged
from xjax.metrics.slices import ALL
from xjax.report.collect import SEED, Run, protocols
from xjax.train.workdir import Workdir, read_json

SPLITS = ('dev', 'test')  # which is taken where none is named


@dataclasses.dataclass(frozen=True)
class Truth:
  """Files that go with files of predictions; those of a run need none.

  Attributes:
    gold: path of the documents' labels; '': the predictions have them.
    train_labels: path of the training documents' labels; '' likewise.
  """

  gold: str = ''
  train_labels: str = ''


OWN = Truth()  # the files have what they need


def read_runs(
  arguments: Sequence[str],
  split: str = '',
  names: Sequence[str] = (),
  truth: Truth = OWN,
  replicates: int = 0,
) -> list[Run]:
  """Reads workdirs, folders of an evaluation, and files of predictions.

  Args:
    arguments: paths.
    split: of the workdirs; '': the first of SPLITS that all have.
    names: of the runs, each for one argument; (): the folders' or files'.
    truth: what goes with the files.
    replicates: of the bootstrap, for intervals where metrics.json has none; 0:
      none are made.

  Raises:
    ConfigError: fewer or more names than arguments; no such split.
    DataError: a path is none of these, a file is damaged, there is no gold, or
      the runs are not of the same documents.
  """
  if names and len(names) != len(arguments):
    raise ConfigError(
      f'--names: {len(names)} names for {len(arguments)} systems'
    )
  paths = [pathlib.Path(os.path.expanduser(a)).absolute() for a in arguments]
  split = split or _common_split([p for p in paths if _is_workdir(p)])
  runs = [
    _read(path, split, name, truth)
    for path, name in zip(paths, names or map(_name_of, paths))
  ]
  return [_with_intervals(run, replicates) for run in runs]


def _with_intervals(run: Run, replicates: int) -> Run:
  """Metrics stay as they are; only intervals are added."""
  if not replicates or INTERVALS in run.metrics:
    return run
  values = run.metrics[protocols(run.metrics)[0]][ALL]
  ks = [int(name[2:]) for name in values if name.startswith('P@')]
  criteria = Criteria(ks=ks or Criteria().ks, replicates=replicates)
  found = judge(run.predictions, criteria)[INTERVALS]
  return dataclasses.replace(run, metrics={**run.metrics, INTERVALS: found})


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
    path = path.parent.parent
  return path.name if path.is_dir() else path.name.partition('.')[0]


def _read(path: pathlib.Path, split: str, name: str, truth: Truth) -> Run:
  if _is_workdir(path):
    return _read_workdir(Workdir.at(path), split, name)
  folder = path if path.is_dir() else path.parent
  file = folder / PREDICTIONS if path.is_dir() else path
  if not file.is_file():
    raise DataError(
      f'{path}: neither a workdir (a folder with config.json), nor a folder '
      f'with {PREDICTIONS}, nor a file of predictions'
    )
  # An evaluation is taken as it was judged, unless other gold is given.
  judged = file.name == PREDICTIONS and (folder / METRICS).is_file()
  if judged and truth == OWN:
    run = Run(name, path, '', None, {}, read_predictions(file))
    return _judged(run, folder / METRICS)
  run = Run(name, path, '', None, {}, read_predictions(file, truth))
  return _judged(run, None)


def _read_workdir(home: Workdir, split: str, name: str) -> Run:
  folder = home.evaluation(split)
  if not (folder / PREDICTIONS).is_file():
    raise ConfigError(
      f'{home.path}: split {split!r} was not judged here, but: '
      f'{_splits_of(home.path)}; experiments.evaluate --workdir={home.path} '
      f'--split={split} judges it'
    )
  run = Run(
    name=name,
    path=home.path,
    split=split,
    config={SEED: None, **read_json(home.config)},
    metrics={},
    predictions=read_predictions(folder / PREDICTIONS),
    names={
      label.id: label.name
      for label in home.label_space().labels
      if label.name != label.id
    },
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


def read_predictions(path: pathlib.Path, truth: Truth = OWN) -> Predictions:
  """Predictions with gold, from whatever file they are in.

  Raises:
    DataError: the file is damaged, or has no gold.
  """
  files = JudgeFiles(path, truth.gold or None, truth.train_labels or None)
  predictions, _ = read_judged(files)
  if predictions.gold is None:
    raise DataError(
      f'{path}: has no gold labels, so there is nothing to report; --gold=FILE '
      'gives them'
    )
  return predictions


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


def _judged(run: Run, path: pathlib.Path | None) -> Run:
  """With the metrics of the file; computed where there is none."""
  if path is None:
    return dataclasses.replace(run, metrics=judge(run.predictions))
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
  if counts != {n_docs}:
    raise DataError(
      f'{path}: is of {", ".join(map(str, sorted(counts)))} documents, '
      f'{PREDICTIONS} beside it of {n_docs}; experiments.evaluate makes both'
    )
