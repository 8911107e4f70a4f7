import dataclasses
import json
import shutil

import numpy as np
import pytest

from xjax.core.errors import DataError
from xjax.core.mesh import DATA, LABEL
from xjax.core.types import ScoreKind
from xjax.run.fit import fit
from xjax.run.open_run import open_run


@pytest.fixture(scope='module')
def predictor(finished):
  return open_run(finished.workdir)


def test_scores_that_are_no_logits_stay_as_they_are(predictor):
  class Margins:
    score_kind = ScoreKind.MARGIN
    rank = predictor.scorer.rank

  raw = dataclasses.replace(predictor, calibration=None)
  margins = dataclasses.replace(raw, scorer=Margins())
  (found,), (probable,) = (p.predict(['nipa'], 3) for p in (margins, raw))
  logits = [np.log(p.score) - np.log1p(-p.score) for p in probable]
  np.testing.assert_allclose([p.score for p in found], logits, atol=1e-4)


def test_a_batch_is_rounded_up_to_the_devices(
  config, finished, predictor, devices
):
  assert config.eval.batch_size % 7
  (expected,) = predictor.predict(['nipa'], k=1)
  with devices(7):
    predictor = open_run(finished.workdir)
    assert predictor.scorer.mesh.shape == {DATA: 7, LABEL: 1}
    (found,) = predictor.predict(['nipa'], k=1)
  assert [x.id for x in found] == [x.id for x in expected]


DAMAGES = {
  'config.json': ['', '{"data": {"kind": "x"}}'],
  'corpus.json': ['', '{}', '[]'],
  'labels.jsonl': ['{', '{"id": "a"}\n'],
}


@pytest.mark.parametrize('name', DAMAGES)
def test_a_damaged_or_missing_file_is_named(workdir, name):
  for content in DAMAGES[name]:
    (workdir / name).write_text(content)
    with pytest.raises(DataError, match=name.rpartition('/')[2]):
      open_run(workdir)
  (workdir / name).unlink()
  with pytest.raises(DataError, match=name.rpartition('/')[2]):
    open_run(workdir)


def test_damaged_and_missing_checkpoints(finished, workdir):
  meta = workdir / 'checkpoints' / str(finished.best_step) / 'checkpoint.json'
  assert finished.best_step < finished.steps
  meta.write_text('{')
  with pytest.raises(DataError, match='is damaged'):
    open_run(workdir)
  shutil.rmtree(workdir / 'checkpoints')
  with pytest.raises(DataError, match='no complete checkpoint'):
    open_run(workdir)


def test_a_lost_best_checkpoint_is_not_replaced_by_another(
  finished, config, workdir, caplog
):
  shutil.rmtree(workdir / 'checkpoints' / str(finished.best_step))
  says = f'/{finished.best_step}: no such checkpoint; .* step=N or --step=N'
  with pytest.raises(DataError, match=says):
    open_run(workdir)
  assert open_run(workdir, step=finished.steps).step == finished.steps
  fit(config, workdir)  # from now on, the newest counts as the best
  assert f'(step {finished.best_step}) is lost' in caplog.text
  assert open_run(workdir).step == finished.steps


def test_needs_nothing_but_the_workdir(workdir, predictor):
  path = workdir / 'config.json'
  config = json.loads(path.read_text())
  config['data']['dir'] = '/gone'
  config['mesh'] = {'data': 3, 'label': 5}  # devices of another machine
  path.write_text(json.dumps(config))
  moved = open_run(workdir)
  assert moved.predict(['nipa'], 3) == predictor.predict(['nipa'], 3)
