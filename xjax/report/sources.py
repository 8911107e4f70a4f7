"""Reads a report's systems from workdirs, evaluations or prediction files."""

from collections.abc import Sequence
import dataclasses
import os
import pathlib

import numpy as np

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
from xjax.judge.files.judge_files import DEPTH, JudgeFiles, read_judged
from xjax.judge.predictions import Predictions
from xjax.report.runs import SEED, JudgedRun
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
  training labels etc.) replaces that of prediction files. What they still lack
  of gold, training counts and parents is taken from the first workdir, or else
  from the first file with gold. Of a score file, `depth` labels are kept per
  document.

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
  if len(workdirs) == len(paths) and files != OWN:
    raise ConfigError(
      '--gold, --train_labels, --filter, --inv_prop, --label_order, '
      '--score_kind, --depth and --leave_out are for files of predictions, but '
      'all systems are workdirs; remove the flag; to leave labels out, judge '
      'each workdir by xjax evaluate --leave_out, and give the folders that it '
      'writes'
    )
  split = split or _common_split(workdirs)
  runs = [
    _read(path, split, name, files, depth)
    for path, name in zip(paths, names or map(_name_of, paths))
  ]
  with_gold = [run for run in runs if run.predictions.gold is not None]
  if not with_gold:
    raise DataError(
      f'{runs[0].path}: no gold labels, so there is nothing to report; choose '
      'a file with gold labels by --gold=FILE'
    )
  reference = min(with_gold, key=lambda run: run.config is None)
  runs = [_fill_in(run, reference, files, depth) for run in runs]
  runs = _share_dropped(runs)
  ids = read_left_out(files.leave_out, '--leave_out')
  if ids and not set(ids) & set(runs[0].predictions.dropped):
    raise DataError(
      f'--leave_out={files.leave_out}: no system has any of these labels; give '
      'the file that belongs to the systems'
    )
  return runs


def _fill_in(
  run: JudgedRun, reference: JudgedRun, files: JudgeFiles, depth: int
) -> JudgedRun:
  """Adds gold, counts and parents that a file lacks; orders its labels."""
  if run.config is not None or run is reference:
    return run
  ours, theirs = run.predictions, reference.predictions
  lacking = {}
  if ours.gold is None:
    lacking['gold'] = reference.file
  if not ours.n_train and theirs.n_train:
    if ours.gold is None or set(ours.labels) <= set(theirs.labels):
      lacking['train_labels'] = reference.file
  if lacking:
    files = dataclasses.replace(
      files, predictions=run.file, may_lack=True, **lacking
    )
    ours, weight_of = _read_file(files, depth)
    run = dataclasses.replace(run, weight_of=weight_of)
    if theirs.dropped:  # its file still has these labels
      ours = ours.leaving_out(_indices(ours, theirs.dropped))
      ours = ours.of_judged_labels()
    if 'train_labels' in lacking:
      held_out = [theirs.labels[i] for i in theirs.held_out]
      ours = dataclasses.replace(ours, held_out=_indices(ours, held_out))
  if set(ours.labels) <= set(theirs.labels):
    ours = _in_order(ours, theirs.labels)
  if ours.hierarchy is None and theirs.hierarchy is not None:
    if set(ours.labels) & set(theirs.labels):
      hierarchy = theirs.hierarchy.for_labels(ours.labels)
      ours = dataclasses.replace(ours, hierarchy=hierarchy)
  return dataclasses.replace(run, predictions=ours)


def _read_file(
  files: JudgeFiles, depth: int
) -> tuple[Predictions, dict[str, float] | None]:
  """Returns predictions of the judged labels, and label weights by id."""
  predictions, weights_L = read_judged(files, depth)
  weight_of = None
  if weights_L is not None:
    weight_of = dict(zip(predictions.labels, weights_L.tolist(), strict=True))
  return predictions.of_judged_labels(), weight_of


def _indices(predictions: Predictions, ids: Sequence[str]) -> np.ndarray:
  wanted, labels = set(ids), predictions.labels
  return np.array(
    [i for i, id_ in enumerate(labels) if id_ in wanted], np.int32
  )


def _in_order(predictions: Predictions, labels: Sequence[str]) -> Predictions:
  """Puts the labels in another order, which may have more labels."""
  if tuple(labels) == tuple(predictions.labels):
    return predictions
  place_of = {id_: i for i, id_ in enumerate(labels)}
  places = np.array([place_of[id_] for id_ in predictions.labels], np.int32)
  return predictions.renumbered(places, tuple(labels))


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
  predictions, weight_of = _read_file(
    dataclasses.replace(files, predictions=file, may_lack=True), depth
  )
  run = JudgedRun(
    name, path, '', None, {}, predictions, weight_of=weight_of, file=file
  )
  # Saved metrics are valid only if no additional files change what is judged.
  has_metrics = file.name == PREDICTIONS and (folder / METRICS).is_file()
  if not has_metrics or files != OWN:
    return run
  if not (folder / MARK).is_file() and not _in_workdir(folder):
    return run  # the files may not belong together
  facts = read_mark(folder / MARK, _WRITE_AGAIN)
  # The saved ECE is that of the run's calibrated probabilities.
  if _in_workdir(folder):
    split, home = folder.name, Workdir.at(folder.parent.parent)
    calibration = _calibration(home, facts.get('step'))
  elif split := str(facts.get(JUDGED, '')):
    calibration = Calibration.load(folder / CALIBRATION)
  else:
    calibration = None
  metrics = read_json(folder / METRICS)
  return dataclasses.replace(
    run, split=split, calibration=calibration, metrics=metrics
  )


def _read_workdir(home: Workdir, split: str, name: str) -> JudgedRun:
  folder = home.evaluation(split)
  if not (folder / PREDICTIONS).is_file():
    raise ConfigError(
      f'{home.path}: split {split!r} was not judged (judged splits: '
      f'{_splits_of(home.path)}); judge it with xjax evaluate '
      f'--workdir={home.path} --split={split}'
    )
  facts = read_mark(
    home.judged(split),
    'judge the split again with xjax evaluate '
    f'--workdir={home.path} --split={split.partition(".")[0]}',
  )
  space = home.label_space()
  return JudgedRun(
    name=name,
    path=home.path,
    split=split,
    config={SEED: None, **read_json(home.config)},
    metrics=read_json(folder / METRICS),
    predictions=Predictions.load(folder / PREDICTIONS).of_judged_labels(),
    file=folder / PREDICTIONS,
    labels=space.labels,
    concepts=space.concepts,
    history=home.history(),
    calibration=_calibration(home, facts.get('step')),
    record=RunRecord.read(home),
  )


def _calibration(home: Workdir, step: int | None) -> Calibration | None:
  if not home.calibration.is_file():
    return None
  calibration = Calibration.load(home.calibration)
  same = calibration.step == step
  return calibration if same and not calibration.reason else None
