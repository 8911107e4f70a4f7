import importlib.util
import pathlib

from huggingface_hub import constants
import pytest

from xjax.core.errors import DataError
from xjax.networks.pretrained.model_folder import find_model

COMMIT = 'c' * 40


@pytest.fixture
def cache(tmp_path, monkeypatch):
  for name in ('HUGGINGFACE_HUB_CACHE', 'HF_HOME', 'XDG_CACHE_HOME'):
    monkeypatch.delenv(name, raising=False)
  folder = tmp_path / 'cache'
  monkeypatch.setenv('HF_HUB_CACHE', str(folder))
  monkeypatch.chdir(tmp_path)
  monkeypatch.setattr(constants, 'HF_HUB_CACHE', str(folder))
  return folder


def cache_folder() -> pathlib.Path:
  """Where a run begun now looks."""
  spec = importlib.util.find_spec('huggingface_hub.constants')
  anew = importlib.util.module_from_spec(spec)
  spec.loader.exec_module(anew)
  return pathlib.Path(anew.HF_HUB_CACHE)


def put(cache, name, commit=COMMIT):
  """A model in the cache; its snapshot is of COMMIT."""
  model = cache / name
  (model / 'snapshots' / COMMIT).mkdir(parents=True)
  (model / 'refs').mkdir()
  (model / 'refs' / 'main').write_text(commit)
  return model / 'snapshots' / COMMIT


@pytest.mark.parametrize(
  ('name', 'folder'),
  [('org/na-me.v2', 'models--org--na-me.v2'), ('plain', 'models--plain')],
)
def test_a_name_is_looked_up(name, folder, cache):
  snapshot = put(cache, folder)
  assert find_model(name) == snapshot


def test_a_folder_comes_first(cache, tmp_path):
  put(cache, 'models--org--name')
  (tmp_path / 'org' / 'name').mkdir(parents=True)
  assert find_model('org/name').resolve() == tmp_path / 'org' / 'name'
  assert find_model(str(tmp_path)) == tmp_path


def test_the_cache_is_where_the_variables_say(cache, tmp_path, monkeypatch):
  assert cache_folder() == cache
  monkeypatch.setenv('HF_HOME', str(tmp_path / 'home'))
  assert cache_folder() == cache
  monkeypatch.delenv('HF_HUB_CACHE')
  assert cache_folder() == tmp_path / 'home' / 'hub'
  monkeypatch.delenv('HF_HOME')
  monkeypatch.setenv('HOME', str(tmp_path))
  assert cache_folder() == tmp_path / '.cache' / 'huggingface' / 'hub'


def test_an_absent_model_says_where_it_was_looked_for(cache):
  with pytest.raises(DataError) as error:
    find_model('org/name')
  said = str(error.value)
  assert str(cache) in said and 'models--org--name/refs/main' in said
  assert 'hf download org/name' in said


@pytest.mark.parametrize(
  'name', ['', '../x', '/nowhere/at/all', 'a/b/c', 'a/../b', '-x', 'a\0b', 'é']
)
def test_what_is_no_name_is_a_folder_that_is_not_there(name, cache):
  put(cache, 'models--a--b')
  says = 'is neither a folder nor the name|is not a folder'
  with pytest.raises(DataError, match=says):
    find_model(name)


def test_a_file_is_no_folder(cache, tmp_path):
  (tmp_path / 'm').write_text('')
  with pytest.raises(DataError, match='m: is a file; give the folder'):
    find_model('m')


@pytest.mark.parametrize('commit', ['', '..', '../../other', 'd' * 40, '\0'])
def test_a_broken_reference(commit, cache):
  put(cache, 'models--org--name', commit)
  (cache / 'models--org--name' / 'other').mkdir()
  with pytest.raises(DataError, match='refs/main: does not name a folder'):
    find_model('org/name')
