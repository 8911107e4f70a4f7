"""Freezes runs on real data: whole predictions and metrics, made by `xjax`."""

import gzip
import itertools
import json
import pathlib
import shutil
import subprocess
import sys

from tests.golden.record import is_neural, training_of

ROOT = pathlib.Path(__file__).resolve().parents[2]
KEPT = 'predictions.npz', 'metrics.json'

# Config -> the folder that it reads. EURLEX57K is cut to these documents.
LARGE = {
  'xc_svm': 'bibtex',
  'xc_plt': 'bibtex',
  'xc_xr_linear': 'bibtex',
  'xc_best': 'bibtex',
  'eurlex57k_xr_linear': 'eurlex57k',
  'eurlex57k_best_cpu': 'eurlex57k',
}
DOCUMENTS = {'train': 2000, 'dev': 1000}
LABELS = 'label_universe.txt'


def is_frozen(output: pathlib.Path, name: str) -> bool:
  """Returns whether a run has been frozen, and has not failed."""
  path = output / name / 'record.json'
  return path.exists() and not json.loads(path.read_text())['failure']


def freeze_large(
  name: str, data: pathlib.Path, output: pathlib.Path, scratch: pathlib.Path
) -> str:
  """Trains a config, and keeps the files of its splits.

  Args:
    name: a key of LARGE.
    data: folder of the folders of real data.
    output: gets a folder NAME with a folder for each judged split.
    scratch: gets the workdir.

  Returns:
    Why it failed; '' if it did not.
  """
  folder, workdir = output / name, scratch / name
  shutil.rmtree(folder, ignore_errors=True)
  folder.mkdir(parents=True)
  record = {'failure': '', 'neural': False, 'training': {}}
  try:
    run(name, data, scratch, workdir)
    for split in sorted(path.name for path in (workdir / 'eval').iterdir()):
      (folder / split).mkdir()
      for file in KEPT:
        shutil.copy(workdir / 'eval' / split / file, folder / split)
    record |= {'neural': is_neural(workdir), 'training': training_of(workdir)}
  except Exception as error:  # every config has its turn
    record['failure'] = f'{type(error).__name__}: {error}'[:1000]
  (folder / 'record.json').write_text(json.dumps(record))
  return record['failure']


def run(
  name: str, data: pathlib.Path, scratch: pathlib.Path, workdir: pathlib.Path
) -> None:
  """Starts `xjax train` and waits for its end.

  Raises:
    RuntimeError: the command failed.
  """
  source, more = (data / LARGE[name]).resolve(), []
  if LARGE[name] == 'eurlex57k':
    source = cut_eurlex57k(source, scratch / 'eurlex57k')
    more = [f'--config.data.labels={LABELS}']
  flags = f'--config={name}', f'--config.data.dir={source}', *more
  done = subprocess.run(
    [sys.executable, '-m', 'xjax', 'train', *flags, f'--workdir={workdir}'],
    cwd=ROOT,
    capture_output=True,
    text=True,
  )
  if done.returncode:
    raise RuntimeError(f'exit code {done.returncode}: {done.stderr[-800:]}')


def cut_eurlex57k(source: pathlib.Path, folder: pathlib.Path) -> pathlib.Path:
  """Writes a folder with the first documents, and all labels."""
  if not folder.exists():
    folder.mkdir()
    for split, count in DOCUMENTS.items():
      with gzip.open(source / f'{split}.jsonl.gz', 'rt') as lines:
        text = ''.join(itertools.islice(lines, count))
      (folder / f'{split}.jsonl').write_text(text)
    for file in (LABELS, 'eurovoc_en.json'):
      shutil.copy(source / file, folder)
  return folder
