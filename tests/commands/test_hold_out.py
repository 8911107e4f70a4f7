"""Checks zero-shot judging from the command line, with labels held out."""

import json

import numpy as np
import pytest

from tests.fixtures.vector_files import json_lines
from xjax.data.formats.synthetic import SyntheticData, make_synthetic

HELD_OUT = 5

# OwnData has no list of labels, so the config reads the folder as JsonlData.
CONFIG = """
from xjax.configs import own_networks
from xjax.data.formats.jsonl import JsonlData


def get_config():
  config = own_networks.own_bigru_lwan()
  config.data = JsonlData(tokens=config.data.tokens)
  return config
"""


@pytest.fixture(scope='module')
def data(tmp_path_factory):
  """A folder of JSON lines with descriptors and a list of labels."""
  folder = tmp_path_factory.mktemp('own')
  labels, splits = make_synthetic(
    SyntheticData(n_train=120, n_dev=40, n_test=20, n_labels=32)
  )
  for name, documents in splits.items():
    rows = (
      {'id': d.id, 'zones': dict(d.zones), 'labels': list(d.labels)}
      for d in documents
    )
    json_lines(folder / f'{name}.jsonl', rows)
  rows = ({'id': label.id, 'name': label.name} for label in labels)
  json_lines(folder / 'labels.jsonl', rows)
  listed = sorted((label.id for label in labels), reverse=True)
  (folder / 'list.txt').write_text('\n'.join(listed))
  return folder


@pytest.fixture(scope='module')
def trained(run_main, data, tmp_path_factory):
  workdir = tmp_path_factory.mktemp('held_out') / 'run'
  config = workdir.parent / 'listed.py'
  config.write_text(CONFIG)
  done = run_main(
    *('train', f'--config={config}', f'--workdir={workdir}'),
    f'--config.data.dir={data}',
    '--config.data.labels=list.txt',
    f'--config.data.hold_out_labels={HELD_OUT}',
    '--config.data.tokens.max_tokens=16',
    '--config.data.tokens.buckets=16',
    '--config.data.tokens.min_count=1',
    '--config.model.embedding.dim=8',
    '--config.model.encoder.units=8',
    '--config.train.batch_size=16',
    '--config.train.steps=4',
    '--config.train.warmup=0',
  )
  return workdir, done.stdout


def test_they_are_a_slice_of_table_and_artefact(trained):
  workdir, printed = trained
  rows = [line.split() for line in printed.splitlines()]
  (dev, _) = [row for row in rows if row[:1] == ['held_out']]
  with np.load(workdir / 'eval' / 'dev' / 'predictions.npz') as arrays:
    held_out = arrays['held_out/labels']
    gold = arrays['gold/indices']
    assert arrays['held_out/ids'].shape == arrays['all/ids'].shape
    assert (arrays['train_counts'][held_out] == 0).all()
    # This model scores no label that it was not trained on.
    assert (arrays['held_out/ids'] == -1).all()
  assert len(held_out) == HELD_OUT and np.isin(gold, held_out).any()
  saved = json.loads((workdir / 'eval' / 'dev' / 'metrics.json').read_text())
  values = saved['xjax']['held_out']
  assert values['n_labels'] == HELD_OUT and values['R@5'] == 0
  assert dev[1:3] == [str(HELD_OUT), str(values['n_docs'])]


def test_trained_labels_are_in_the_order_of_the_list(trained, data):
  text = (trained[0] / 'labels.jsonl').read_text()
  rows = [json.loads(line) for line in text.splitlines()]
  ids = [row['id'] for row in rows if 'held_out' not in row]
  assert len(ids) == len(rows) - HELD_OUT
  assert ids == sorted(ids, reverse=True)
  kept = {row['id'] for row in rows if 'held_out' in row}
  assert [row['id'] for row in rows[-HELD_OUT:]] == sorted(kept, reverse=True)


@pytest.mark.parametrize('split', ['dev', 'test'])
def test_evaluate_tells_the_same(run_main, trained, split):
  workdir, printed = trained
  path = workdir / 'eval' / split / 'metrics.json'
  before = path.read_bytes()
  path.unlink()
  done = run_main('evaluate', f'--workdir={workdir}', f'--split={split}')
  assert path.read_bytes() == before
  rows = done.stdout.split('\n\n')[0].splitlines()
  assert all(row in printed for row in rows)
