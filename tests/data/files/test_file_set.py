"""Files that belong together: all of one set, or no mark."""

import json
import os
import pathlib
import re
import shutil

import pytest

from xjax.core.atomic import WriteError, remove_temporaries
from xjax.core.errors import DataError
from xjax.data.files.file_set import file_digest, read_mark, writing_set


@pytest.fixture
def mark(tmp_path):
  return tmp_path / 'folder' / 'mark.json'


def write(mark, **files):
  with writing_set(mark, {'step': 3}) as new:
    for name, text in files.items():
      (new / name).write_text(text)


def contents(folder):
  return {path.name: path.read_text() for path in folder.iterdir()}


def test_a_set_has_a_mark_with_facts_and_digests(mark):
  write(mark, a='one', b='two')
  assert sorted(contents(mark.parent)) == ['a', 'b', 'mark.json']
  assert read_mark(mark, 'again') == {'step': 3}
  listed = json.loads(mark.read_text())['files']
  assert listed['a'] == file_digest(mark.parent / 'a')
  assert len(listed['a']) == 64 and listed['a'] != listed['b']


def test_a_block_that_fails_changes_nothing(mark):
  write(mark, a='one')
  before = contents(mark.parent)
  with pytest.raises(KeyError), writing_set(mark, {}) as new:
    (new / 'a').write_text('two')
    raise KeyError
  assert contents(mark.parent) == before


def test_files_that_a_new_set_lacks_are_removed(mark):
  write(mark, a='one', b='two', c='three')
  (mark.parent / 'c').write_text('of the user')
  (mark.parent / 'd').write_text('of the user')
  write(mark, a='four')
  left = contents(mark.parent)
  assert sorted(left) == ['a', 'c', 'd', 'mark.json'] and left['a'] == 'four'


@pytest.mark.parametrize(
  ('name', 'text', 'message'),
  [
    ('mark.json', None, 'folder: is not complete'),
    ('a', None, 'a: is missing, but .*mark.json lists it'),
    ('a', 'two', 'a: is not the file'),
    ('mark.json', '[]', 'not a JSON object'),
    ('mark.json', '[' * 10**5, 'cannot be read'),
    ('mark.json', '{"files": ["a"]}', 'must have the digest'),
    ('mark.json', '{"files": {"../a": ""}}', 'must have the digest'),
  ],
)
def test_what_is_wrong_with_a_set(mark, name, text, message):
  write(mark, a='one')
  path = mark.parent / name
  if text is None:
    path.unlink()
  else:
    path.write_text(text)
  with pytest.raises(DataError, match=message):
    read_mark(mark, 'again')
  write(mark, a='three')
  assert read_mark(mark, 'again') == {'step': 3}


def test_a_message_names_the_folder_that_the_user_knows(mark):
  (mark.parent / 'a').mkdir(parents=True)
  with pytest.raises(WriteError, match='folder: cannot be written'):
    write(mark, a='one')
  assert [p.name for p in mark.parent.iterdir()] == ['a']


def test_what_a_killed_process_leaves_is_swept(mark):
  with writing_set(mark, {}) as new:
    assert re.fullmatch(rf'\.mark\.json\.xjax-{os.getpid()}-\w+\.tmp', new.name)
    left = shutil.copytree(new, new.parent / new.name.replace('-', '-1', 1))
  remove_temporaries(mark.parent)
  assert left.exists() == pathlib.Path(f'/proc/1{os.getpid()}').exists()
  assert mark.exists()


class Killed(BaseException):
  """Stands for SIGKILL at a change of the file system."""


@pytest.fixture
def killed_at(monkeypatch):
  """Does an action in which all changes of files fail, from the n-th on."""

  def run(n, action):
    changes = iter(range(n))

    def counting(change):
      def call(*args, **options):
        if next(changes, None) is None:
          raise Killed
        return change(*args, **options)

      return call

    with monkeypatch.context() as patch:
      for name in ('replace', 'unlink', 'rmdir'):
        patch.setattr(os, name, counting(getattr(os, name)))
      try:
        action()
      except Killed:
        return True
    return False

  return run


def test_a_set_is_never_mixed_wherever_its_writer_is_killed(mark, killed_at):
  old = {'a': 'one', 'b': 'two', 'c': 'three', 'd': 'three'}
  new = {'a': 'four', 'b': 'five'}
  n, was_killed = 0, True
  while was_killed:
    shutil.rmtree(mark.parent, ignore_errors=True)
    write(mark, **old)
    was_killed = killed_at(n, lambda: write(mark, **new))
    state = contents_of_set(mark)
    assert state in (None, old, new), f'killed at change {n}'
    assert was_killed or state == new
    # The next writer leaves only its own files.
    write(mark, **new)
    assert sorted(contents(mark.parent)) == ['a', 'b', 'mark.json'], n
    n += 1
  assert n > 6


def test_two_writers_at_once_do_not_both_succeed(mark, monkeypatch):
  replace = os.replace

  def replace_after_another(source, target):
    replace(source, target)
    if target.name == 'b':
      (target.parent / 'a').write_text('of another process')

  monkeypatch.setattr(os, 'replace', replace_after_another)
  says = 'a: is not .* another process wrote here'
  with pytest.raises(DataError, match=says):
    write(mark, a='one', b='two')


def contents_of_set(mark):
  """Returns what a reader sees; None if it refuses the set.

  Readers of X.npz take files without a mark as files of another program.
  """
  if mark.exists():
    try:
      read_mark(mark, 'again')
    except DataError:
      return None
  names = (path.name for path in mark.parent.iterdir())
  return {
    name: (mark.parent / name).read_text()
    for name in names
    if not name.startswith('.') and name != mark.name
  }


def test_temporaries_of_other_sets_stay(mark):
  mark.parent.mkdir()
  other = mark.parent / f'.other.json.xjax-{2**22 + 1}-abc.tmp'
  other.mkdir()
  write(mark, a='one')
  assert other.exists()
