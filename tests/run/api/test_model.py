"""The Model of Python users, and xjax.fit."""

import copy
import json
import pickle
import shutil
import subprocess
import sys

import numpy as np
import pytest
from scipy import sparse

from tests.fixtures.frames import Column, Frame
from tests.fixtures.tagged_texts import N_LABELS, tagged_texts
import xjax
from xjax.core.atomic import WriteError
from xjax.core.errors import ConfigError, DataError
from xjax.data.schema import Document, Label
from xjax.run.evaluate_split import evaluate_split
from xjax.run.fit import fit


@pytest.fixture(scope='module')
def test():
  return tagged_texts(1)


@pytest.fixture(scope='module')
def model(train):
  return xjax.fit(*train, dev=0.25, verbose=False)


@pytest.fixture(scope='module')
def neural(finished):
  return xjax.load(finished.workdir)


def test_texts_and_labels_in_memory_train_a_model(model, test):
  texts, labels = test
  for ids, found in zip(labels, model.predict(texts, k=2), strict=True):
    assert {label.id for label in found} == set(ids)
  assert [label.id for label in model.labels] == [f'l{i}' for i in range(6)]
  assert model.evaluate(texts, labels)['all']['P@1'] == 1


@pytest.mark.parametrize(
  'form',
  [tuple, iter, np.array, lambda texts: np.array(texts, object)]
  + [lambda texts: Column(*texts), lambda texts: Frame(body=texts)]
  + [lambda texts: [Document('', {'text': text}) for text in texts]],
)
def test_texts_of_every_form_get_the_same_labels(model, test, form):
  texts = test[0][:5]
  assert model.predict(form(texts)) == model.predict(texts)


def test_a_single_text_is_a_list_of_one(model, neural, test):
  text = test[0][0]
  assert model.predict(text) == model.predict([text])
  assert model.predict(Document('', {'text': text})) == model.predict([text])
  assert neural.predict(text, k=3) == neural.predict([text], k=3)
  assert len(neural.explain(text, k=2)) == 1


@pytest.mark.parametrize('texts', [b'a', [None]])
def test_no_text_is_one_error(model, texts):
  for method in (model.predict, model.predict_proba, model.explain):
    with pytest.raises(DataError, match='texts'):
      method(texts)


@pytest.mark.parametrize('k', [0, 1.5, True])
def test_k_must_be_an_integer_of_at_least_1(model, neural, k):
  for method in (model.predict, neural.explain):
    with pytest.raises(ConfigError, match=r'k=.*: must be an integer'):
      method(['a'], k=k)


def test_probabilities_are_those_of_predict(model, test):
  texts = test[0][:7]
  found = model.predict_proba(texts)
  assert sparse.issparse(found) and found.shape == (7, N_LABELS)
  index = {label.id: i for i, label in enumerate(model.labels)}
  for row, labels in enumerate(model.predict(texts, k=None)):
    for label in labels:
      assert found[row, index[label.id]] == label.score


def without_calibration(slices: dict[str, dict]) -> dict[str, dict]:
  """Returns the metrics that do not depend on the calibration."""
  return {
    name: {k: v for k, v in values.items() if not k.startswith('ECE')}
    for name, values in slices.items()
  }


def test_evaluate_gives_the_metrics_of_the_run(train, test, tmp_path):
  texts, labels = test
  model = xjax.fit(*train, dev=test, workdir=tmp_path / 'run', verbose=False)
  saved = json.loads((tmp_path / 'run/eval/dev/metrics.json').read_text())
  # A run cross-fits the probabilities of dev; another judging does not.
  saved = without_calibration(saved['xjax'])
  assert without_calibration(model.evaluate(texts, labels)) == saved
  hot = np.array([[f'l{i}' in ids for i in range(N_LABELS)] for ids in labels])
  assert without_calibration(model.evaluate(texts, hot)) == saved
  documents = [
    Document(str(row), {'text': text}, tuple(ids))
    for row, (text, ids) in enumerate(zip(texts, labels))
  ]
  assert without_calibration(model.evaluate(documents)) == saved


def test_an_unknown_label_is_a_miss_and_a_warning(model, test, caplog):
  texts, labels = test
  more = [[*ids, 'unknown'] for ids in labels]
  metrics = model.evaluate(texts, more)['all']
  assert metrics['P@1'] == 1
  assert metrics['R@5'] == pytest.approx(2 / 3)
  says = "does not know 1 label of the documents, such as 'unknown'"
  assert says in caplog.text


def test_gold_labels_may_be_names(train, test):
  texts, labels = train
  names = [Label(f'l{i}', f'Étiquette {i}') for i in range(N_LABELS)]
  model = xjax.fit(texts, labels, dev=0, label_names=names, verbose=False)
  expected = model.evaluate(*test)
  for form in ('Étiquette {}', 'E\u0301TIQUETTE  {}', 'l{}\u200b'):
    named = [[form.format(x.strip('l')) for x in ids] for ids in test[1]]
    assert model.evaluate(test[0], named) == expected


def test_a_threshold_keeps_the_labels_at_or_above_it(model, test):
  texts = test[0][:20]
  for least in (0, 0.3, 1):
    wanted = [
      [label for label in labels if label.score >= least]
      for labels in model.predict(texts, k=None)
    ]
    assert model.predict(texts, k=None, threshold=least) == wanted
    short = [labels[:1] for labels in wanted]
    assert model.predict(texts, k=1, threshold=least) == short


@pytest.mark.parametrize('threshold', [-0.1, True, float('nan')])
def test_a_threshold_is_a_probability(model, threshold):
  with pytest.raises(ConfigError, match="must be 'tuned' or a probability"):
    model.predict(['a'], threshold=threshold)


def test_a_run_without_dev_has_no_probabilities(train):
  model = xjax.fit(*train, dev=0, verbose=False)
  with pytest.raises(ConfigError, match='this run has no tuned threshold'):
    model.predict(['a'], threshold='tuned')
  for use in (lambda x: model.predict(x, threshold=0.5), model.predict_proba):
    with pytest.raises(ConfigError, match='are margins, not probabilities'):
      use(['a'])


def test_a_saved_neural_model_is_the_same_and_small(
  finished, workdir, tmp_path, caplog
):
  model = xjax.load(workdir)
  model.save(tmp_path / 'saved')
  texts = ['nipa mani', 'gipu']
  wanted = model.predict(texts), model.explain(texts)
  shutil.rmtree(workdir)
  saved = xjax.load(tmp_path / 'saved')
  assert (saved.predict(texts), saved.explain(texts)) == wanted
  assert 'NeuralModel with' in repr(saved)
  assert saved.run.step == finished.best_step != finished.steps
  (step,) = (tmp_path / 'saved/checkpoints').iterdir()
  names = sorted(path.name for path in step.iterdir())
  assert names == ['checkpoint.json', 'params']
  assert 'is lost' not in caplog.text


def test_a_moved_workdir_is_loaded_judged_saved_and_pickled(train, tmp_path):
  texts, labels = train
  before = xjax.fit(texts, labels, workdir=tmp_path / 'run', verbose=False)
  wanted = before.predict(texts, threshold='tuned')
  metrics = before.evaluate(texts, labels)
  (tmp_path / 'run').rename(tmp_path / 'moved')
  model = xjax.load(tmp_path / 'moved')
  assert model.predict(texts, threshold='tuned') == wanted
  assert model.evaluate(texts, labels) == metrics
  model.save(tmp_path / 'saved')
  copies = xjax.load(tmp_path / 'saved'), pickle.loads(pickle.dumps(model))
  for copied in copies:
    assert copied.predict(texts, threshold='tuned') == wanted
    assert copied.evaluate(texts, labels) == metrics
  # The documents of the run have moved too.
  assert evaluate_split(tmp_path / 'moved', 'dev').folder.name == 'dev'
  for path in (tmp_path / 'saved').rglob('*.json*'):
    assert str(tmp_path) not in path.read_text()


def test_a_model_whose_workdir_has_gone_is_not_saved_in_part(workdir, tmp_path):
  model = xjax.load(workdir)
  workdir.rename(tmp_path / 'moved')
  for use in (
    pickle.dumps,
    lambda model: model.save(tmp_path / 'saved'),
    lambda model: model.evaluate(['nipa'], [['x']]),
    lambda model: model.predict('nipa', threshold='tuned'),
  ):
    with pytest.raises(DataError, match='run: this folder has no run of xjax'):
      use(model)
  assert [path.name for path in tmp_path.iterdir()] == ['moved']
  assert model.predict('nipa')


def test_saving_changes_no_folder_that_has_files(model, tmp_path):
  (tmp_path / 'file').write_text('mine')
  with pytest.raises(WriteError, match='exists already'):
    model.save(tmp_path)
  assert [path.name for path in tmp_path.iterdir()] == ['file']


def test_a_saved_neural_model_cannot_train_on(finished, config, tmp_path):
  xjax.load(finished.workdir).save(tmp_path / 'saved')
  with pytest.raises(DataError, match='was saved for predicting, without the'):
    fit(config, tmp_path / 'saved')


def test_pickles_and_copies_predict_the_same(train, neural):
  model = xjax.fit(*train, verbose=False)
  texts = train[0][:9]
  for each in (model, neural):
    for copied in (pickle.loads(pickle.dumps(each)), copy.deepcopy(each)):
      assert copied.predict(texts) == each.predict(texts)
  # A temporary folder lives as long as a model that needs it.
  data, copied = pickle.dumps(model), pickle.loads(pickle.dumps(model))
  wanted, path = model.predict(texts), model.workdir.path
  assert copied.workdir.path != path and path.exists()
  del model, each
  assert not path.exists() and copied.workdir.path.exists()
  assert pickle.loads(data).predict(texts) == wanted


def test_after_warmup_nothing_is_compiled(workdir, compiled):
  config = json.loads((workdir / 'config.json').read_text())
  config['eval']['batch_size'] = 2
  (workdir / 'config.json').write_text(json.dumps(config))
  model = xjax.load(workdir)
  model.warmup(explain=True)
  assert compiled
  compiled.clear()
  rng = np.random.default_rng(0)
  for _ in range(20):
    n = int(rng.integers(1, 9))
    texts = [' '.join(['nipa'] * length) for length in rng.integers(0, 40, n)]
    model.predict(texts, k=int(rng.integers(1, model.config.eval.depth)))
  model.explain(texts[:3], k=5)
  assert compiled == []


def test_texts_and_features_are_not_mixed_up(model, neural, features):
  rows, hot, _ = features
  for each in (model, neural):
    with pytest.raises(ConfigError, match='this run reads texts'):
      each.predict(rows)
  of_features = xjax.fit(rows, hot, dev=0, verbose=False)
  with pytest.raises(ConfigError, match='this run reads sparse features'):
    of_features.predict(['a'])
  with pytest.raises(DataError, match='texts: feature 8 is not in 0..7'):
    xjax.fit(rows[:, :8], hot, dev=0, verbose=False).predict(rows)
  # Models without programs can be warmed up.
  model.warmup(explain=True)
  of_features.warmup()
  for explain in (
    lambda: of_features.explain(rows),
    lambda: of_features.warmup(explain=True),
  ):
    with pytest.raises(ConfigError, match='reads features, not words'):
      explain()


IMPORTS = """
import sys
import xjax
assert xjax.__version__
assert set(xjax.__all__) <= set(dir(xjax))
heavy = 'jax', 'numpy', 'sklearn', 'flax'
assert not [name for name in heavy if name in sys.modules]
"""


def test_importing_xjax_imports_no_large_library():
  subprocess.run([sys.executable, '-c', IMPORTS], check=True)
  with pytest.raises(AttributeError, match="no attribute 'nothing'"):
    xjax.nothing  # noqa: B018


def test_extreme_k_and_texts(model, neural):
  for each in (model, neural):
    assert each.predict([]) == []
    for k in (10**9, None):
      ((*found,),) = each.predict([''], k=k)
      assert len(found) == len(each.labels)


def test_a_saved_step_has_its_own_threshold(finished, workdir, tmp_path):
  evaluate_split(workdir, 'dev', step=finished.steps)
  model = xjax.load(workdir, finished.steps)
  wanted = model.predict('nipa mani', threshold='tuned')
  model.save(tmp_path / 'saved')
  copies = xjax.load(tmp_path / 'saved'), pickle.loads(pickle.dumps(model))
  for copied in copies:
    assert copied.predict('nipa mani', threshold='tuned') == wanted
    (judged,) = (copied.workdir.path / 'eval').iterdir()
    assert judged.name == 'dev'
