"""Runs that were killed after their judging, or changed by hand."""

import json
import logging

import pytest

from tests.fixtures.sparse_runs import RUNS, config_of
from xjax.core.errors import DataError
from xjax.run import fit as fit_module
from xjax.run.fit import fit
from xjax.run.open_run import open_run
from xjax.train.run_record import RunRecord
from xjax.train.workdir import Workdir


@pytest.mark.parametrize('when', ['judged', 'before the results'])
def test_a_run_killed_after_its_judging_still_gets_its_record(
  tmp_path, monkeypatch, when
):
  config = config_of(*RUNS['lr'])
  judge_splits = fit_module.judge_splits

  def killed(*_):
    raise SystemExit

  def judge_and_die(*arguments):
    judge_splits(*arguments)
    killed()

  with monkeypatch.context() as patch:
    if when == 'before the results':
      patch.setattr(fit_module, 'write_results', killed)
    else:
      patch.setattr(fit_module, 'judge_splits', judge_and_die)
    with pytest.raises(SystemExit):
      fit(config, tmp_path)
  fit(config, tmp_path)
  record = RunRecord.read(Workdir.at(tmp_path))
  assert record and record.finished
  assert list((tmp_path / 'tb').iterdir())


def test_a_changed_config_is_said_and_a_changed_corpus_an_error(
  tmp_path, caplog
):
  caplog.set_level(logging.WARNING)
  workdir = fit(config_of(*RUNS['lr']), tmp_path).workdir
  assert open_run(workdir).config.eval.depth == 20
  assert not caplog.records
  config = json.loads((workdir / 'config.json').read_text())
  config['eval']['depth'] = 1
  (workdir / 'config.json').write_text(json.dumps(config))
  assert open_run(workdir).config.eval.depth == 1
  assert 'config.json: is not the file that this run wrote' in caplog.text
  # The propensities of labels depend on the number of documents.
  path = workdir / 'corpus.json'
  described = json.loads(path.read_text())
  described['n_train'] += 1
  path.write_text(json.dumps(described))
  with pytest.raises(DataError, match='corpus.json: is not the file that this'):
    open_run(workdir)
