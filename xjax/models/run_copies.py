"""Saves what loading a model needs, as a folder or as bytes."""

import dataclasses
import io
import os
import pathlib
import shutil
import tarfile
import tempfile
import weakref

from xjax.core.atomic import build_folder, check_new_folder, write_json
from xjax.data.files.file_set import read_json
from xjax.models.config_json import to_json
from xjax.models.contract import DEV, Run, load_config
from xjax.train.workdir import Workdir

# What loading a model needs, besides a checkpoint and the evaluation of dev.
_NEEDED = (
  *('config.json', 'labels.jsonl', 'concepts.jsonl', 'left_out.txt'),
  *('corpus.json', 'digests.json', 'run.json', 'calibration.json'),
  *('features', 'model'),
)


class TemporaryFolder:
  """Owns a temporary folder, which is deleted with this object."""

  def __init__(self) -> None:
    self.path = pathlib.Path(tempfile.mkdtemp(prefix='xjax_'))
    # A copy of the object in a forked process must not delete the folder.
    weakref.finalize(self, _remove, self.path, os.getpid())


def _remove(folder: pathlib.Path, owner: int) -> None:
  if os.getpid() == owner:
    shutil.rmtree(folder, ignore_errors=True)


def save_run(run: Run, step: int, folder: str | os.PathLike) -> None:
  """Copies what loading a model needs to a new folder.

  The folder is a workdir without its training, which predict and evaluate can
  use. It needs the workdir of the run no more, and appears only when complete.
  `step` is that of a checkpoint, and 0 for models without steps.
  """
  path = pathlib.Path(os.path.expanduser(folder)).absolute()
  # Files of the user are never removed, so only an empty folder is replaced.
  check_new_folder(path)
  build_folder(path, lambda target: _copy(run, step, target))


def pack_run(run: Run, step: int) -> bytes:
  """Returns the files of save_run as the bytes of a tar archive."""
  holder, buffer = TemporaryFolder(), io.BytesIO()
  _copy(run, step, holder.path)
  with tarfile.open(fileobj=buffer, mode='w') as archive:
    archive.add(holder.path, arcname='.')
  return buffer.getvalue()


def unpack_run(packed: bytes) -> TemporaryFolder:
  """Writes the files of pack_run to a temporary folder."""
  holder = TemporaryFolder()
  with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
    # The filter refuses paths outside the folder, links that leave it and
    # devices.
    archive.extractall(holder.path, filter='data')
  return holder


def _copy(run: Run, step: int, target: pathlib.Path) -> None:
  source, saved = run.folder, Workdir.at(target)
  source.check_has_run()
  # The proposals for training documents are large, and only training reads
  # them.
  unneeded = shutil.ignore_patterns(source.shortlists.name, 'fold_*.npz')
  for path in (source.path / name for name in _NEEDED):
    if path.is_dir():
      shutil.copytree(path, target / path.name, ignore=unneeded)
    # lexists also sees a broken link, whose copy then fails with the path in
    # the message instead of being left out silently.
    elif os.path.lexists(path):
      shutil.copyfile(path, target / path.name)
  if source.checkpoints.is_dir():
    # Imported here, because Orbax loads slowly and linear models have no
    # checkpoints.
    from xjax.train.saved_steps import copy_for_loading

    copy_for_loading(source.checkpoints, step, saved.checkpoints)
  # The evaluation of dev has the tuned threshold. The copy has one checkpoint,
  # which is its best, so the name of the folder needs no step.
  for name in (DEV, f'{DEV}.step_{step}'):
    mark = source.judged(name)
    if mark.is_file() and read_json(mark).get('step') == step:
      shutil.copytree(source.evaluation(name), saved.evaluation(DEV))
      break
  for name in run.config.model.open_stages(run):
    stage = source.stage(name)
    own = Run(load_config(stage.config), stage)
    # The digest of the stage's digest list covers all its files.
    with saved.recording(saved.stage(name).digest_list):
      best = own.config.model.steps(own)[1]
      save_run(own, best, saved.stage(name).path)
  data = run.config.data
  # The documents of the run are not copied, so the copy must not point to them.
  if data.dir and source.path in pathlib.Path(data.dir).absolute().parents:
    data = dataclasses.replace(data, dir='')
    if saved.record.exists():  # nor does it name folders of this machine
      record = read_json(saved.record)
      write_json(saved.record, record | {'folder': '', 'workdir': ''})
  config = dataclasses.replace(run.config, data=data)
  with saved.recording(saved.config):
    write_json(saved.config, to_json(config))
