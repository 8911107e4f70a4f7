"""The model card in a workdir."""

import dataclasses
import json
import logging
import re

import numpy as np
import pytest

from xjax.core.atomic import write_json
from xjax.core.types import Ragged
from xjax.data.formats.jsonl import JsonlData
from xjax.data.schema import Corpus, Document, Labels, Split
from xjax.data.tokens_config import TfidfConfig
from xjax.judge.calibration import Calibration
from xjax.models.config_json import to_json
from xjax.models.contract import Config
from xjax.models.ensemble.ensemble_model import EnsembleModel
from xjax.models.trees.tree_model import LinearModel
from xjax.networks.heads.descriptor_heads import ZeroShotConfig
from xjax.report.card import CARD, MARK, write_card
from xjax.run.fit import FitResult
from xjax.train.workdir import Workdir

TEXTS = np.array([1, 2, 3], np.uint64)


def split_of(name, digests):
  n = len(digests)
  return Split(
    name=name,
    ids=tuple(f'{name}-{i}' for i in range(n)),
    gold=Ragged.of([[0, 1]] * n),
    documents=[Document('d', {'text': 'x'})] * n,
    digest='',
    text_digests=digests,
  )


@pytest.fixture
def result(workdir):
  folder = Workdir.at(workdir('one', 3))
  splits = {
    'train': split_of('train', TEXTS),
    'dev': split_of('dev', TEXTS + np.uint64(9)),
  }
  metrics = json.loads((folder.evaluation('dev') / 'metrics.json').read_text())
  return FitResult(
    workdir=folder.path,
    steps=40,
    best_step=20,
    metrics={'dev': metrics},
    prior={},
    paths={'dev': folder.evaluation('dev')},
    corpus=Corpus(folder.label_space(), splits, 'f00d'),
    calibration=Calibration.load(folder.calibration),
  )


def card(result, **changes):
  return write_card(dataclasses.replace(result, **changes)).read_text()


def rows_of(text, first):
  """Returns {first cell: other cells} of the table with this first header."""
  table = text[text.index(f'| {first} |') :].partition('\n\n')[0]
  cells = [line.strip('| ').split(' | ') for line in table.splitlines()[2:]]
  return {name: rest for name, *rest in cells}


def test_a_card_says_what_the_run_was(result):
  path = write_card(result, ['xjax', 'train', '--config=a b'])
  text = path.read_text()
  assert path == result.workdir / CARD and text.startswith(f'{MARK}\n\n# one\n')
  assert 'A NeuralModel that tags documents with 8 labels.' in text
  assert rows_of(text, 'split')['train'] == ['3', '2.00', 'xjax, by a seed']
  labels = rows_of(text, 'labels')
  assert [count for (count,) in labels.values()] == ['2', '5', '1']
  fields = rows_of(text, 'field')
  assert fields['seed'] == ['`3`'] and fields['model.encoder.units'] == ['`16`']
  assert 'train.steps' not in fields
  assert "xjax train '--config=a b'" in text and "xjax.load('.')" in text
  assert 'the checkpoint of step 20 is used' in text
  assert 'by the method platt, which was fitted on 12 documents' in text
  assert 'Warning' not in text


def test_a_card_has_the_metrics_and_errors_of_probabilities(result):
  text, values = card(result), result.metrics['dev']['xjax']['all']
  assert re.search(rf'(?m)^all .* {values["P@1"]:.3f} ', text)
  errors = [f'{values[name]:.3f}' for name in ('ECE', 'ECE[>0.1]')]
  assert text.count('| split |') == 2
  assert f'| dev | {" | ".join(errors)} |' in text


def test_the_readme_of_a_user_is_kept(result, caplog):
  path = result.workdir / CARD
  first = card(result)
  path.write_text(first + 'changed')
  assert write_card(result) == path and path.read_text() == first
  own = [first.removeprefix(MARK), '', MARK[:-1], f'{MARK} mine\n']
  for text in own:
    path.write_text(text)
    with caplog.at_level(logging.WARNING, logger='absl'):
      assert write_card(result) is None
    assert path.read_text() == text
    assert 'was not written by xjax, so it is kept' in caplog.messages[-1]
  path.unlink()
  path.symlink_to('nowhere')
  assert write_card(result) is None and path.is_symlink()


def test_faults_of_the_corpus_are_warnings_on_the_card(result):
  space = result.corpus.label_space
  labels = [*space.labels]
  labels[1] = dataclasses.replace(labels[1], name='LABEL  <2>')
  dev = split_of('dev', np.arange(3, 6, dtype=np.uint64))
  corpus = dataclasses.replace(
    result.corpus,
    splits={**result.corpus.splits, 'dev': dev},
    label_space=dataclasses.replace(space, labels=Labels.of(labels)),
    left_out='left out 2 records, with 3 faults',
  )
  text = card(result, corpus=corpus)
  assert '**Warning:** dev and train share documents: 1 of 3 documents' in text
  assert '**Warning:** 1 group of labels differs only in case' in text
  assert '**Warning:** left out 2 records, with 3 faults.' in text


@pytest.mark.parametrize(
  ('model', 'told'),
  [
    (LinearModel(), 'has learned nothing'),
    (EnsembleModel(('a', 'b')), 'averages the lists of 2 runs'),
    (ZeroShotConfig(), 'scores labels by their names'),
  ],
)
def test_what_labels_without_training_documents_get(result, model, told):
  config = Config()
  if isinstance(model, ZeroShotConfig):
    config.model.head = model
  else:
    config.model, config.data.tokens = model, TfidfConfig()
  write_json(Workdir.at(result.workdir).config, to_json(config))
  text = ' '.join(card(result).split())
  assert told in text and '1 label has no training document' in text


def test_a_run_without_dev_has_a_card(result):
  nothing = {'metrics': {}, 'prior': {}, 'paths': {}, 'calibration': None}
  text = card(result, steps=0, **nothing)
  assert 'It was not judged' in text and 'Scores are not calibrated.' in text
  assert '###' not in text and 'checkpoint of step' not in text


def test_a_drawn_split_is_told_from_that_of_the_data(result):
  config = dataclasses.replace(Config(), data=JsonlData(dir='my `dät\na`'))
  write_json(Workdir.at(result.workdir).config, to_json(config))
  (result.workdir / 'splits').mkdir()
  (result.workdir / 'splits' / 'train.txt').write_text('of the user\n')
  corpus = dataclasses.replace(result.corpus, drawn=('dev',))
  text = card(result, corpus=corpus)
  assert 'JsonlData from `my däta`, fingerprint `f00d`' in text
  splits = rows_of(text, 'split')
  assert splits['train'][-1] == 'the data'
  assert splits['dev'][-1] == 'xjax, by a seed'
