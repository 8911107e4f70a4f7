"""Runs of linear models and label trees on corpora of files."""

import numpy as np
import pytest

from tests.fixtures.sparse_runs import RUNS, config_of
from xjax.core.errors import ConfigError
from xjax.data.config import GivenFeaturesConfig, Norm
from xjax.data.formats.xc_features import XcFeaturesData
from xjax.judge.predictions import Predictions
from xjax.run.fit import fit
from xjax.run.open_run import open_run


def feature_file(rows, gold, n_features):
  lines = [f'{len(rows)} {n_features} 6']
  for row, labels in zip(rows, gold, strict=True):
    cells = ' '.join(f'{i}:{x:.3f}' for i, x in enumerate(row) if x)
    lines.append(f'{",".join(map(str, labels))} {cells}')
  return '\n'.join(lines) + '\n'


@pytest.mark.parametrize('name', ['plt', 'svm'])
def test_runs_on_files_of_features(tmp_path, name):
  rng = np.random.default_rng(0)
  for split, n in (('train', 80), ('dev', 20), ('test', 20)):
    gold = [rng.choice(6, 2, replace=False) for _ in range(n)]
    rows = rng.random((n, 9)) * (rng.random((n, 9)) < 0.3)
    for row, labels in zip(rows, gold, strict=True):
      row[labels] += 1
    text = feature_file(rows, gold, 9)
    (tmp_path / f'{split}.txt').write_text(text)
  config = config_of(*RUNS[name])
  tokens = GivenFeaturesConfig(Norm.L2)
  config.data = XcFeaturesData(dir=str(tmp_path), tokens=tokens)
  result = fit(config, tmp_path / 'run')
  assert result.metrics['test']['xjax']['all']['P@1'] > 0.9
  predictor = open_run(tmp_path / 'run')
  with pytest.raises(ConfigError, match='reads sparse features, not text'):
    predictor.predict(['text'])
  documents = result.corpus.split('test').documents
  dev = Predictions.load(result.paths['test'] / 'predictions.npz')
  lists = predictor.predict(documents, 3)
  assert [[int(found.id) for found in row] for row in lists] == [
    [int(dev.labels[i]) for i in row] for row in dev.lists['all'].ids[:, :3]
  ]
