"""Small corpora in JSON lines, and what is equal in two corpora."""

import dataclasses
import json

import pytest

from xjax.data.config import TfidfConfig
from xjax.data.formats.jsonl import JsonlData
from xjax.data.schema import Label, label_row
from xjax.models.contract import Config
from xjax.run.transfer.request import Form, KeptLabels, Target, TransferRequest
from xjax.run.transfer.transfer import transfer

WORDS = ('reef', 'tide', 'loam', 'seed', 'ore', 'forge', 'choir', 'lute')
# A has two roots, several parents, a label of which no document has any, and a
# root without children.
TAXONOMY = (
  Label('sea', 'the sea', description='salt water'),
  Label('land', 'dry land', alt=('soil', 'earth')),
  Label('coast', 'coast', parents=('sea', 'land')),
  Label('reefs', 'reef', parents=('coast', 'sea')),
  Label('fields', 'fields', parents=('land',)),
  Label('unused', 'never seen', parents=('fields',)),
  Label('alone', 'a root without children'),
)
ROWS = {
  'train': [
    *(('reefs', 'coast'), ('fields',), ('alone', 'land', 'reefs')),
    *((), ('sea',), ('reefs',)),
  ],
  'dev': [('coast',), ('alone',)],
  'test': [('reefs', 'fields')],
}


def write_corpus(folder, rows, labels=(), zones=('title', 'body'), texts=None):
  """Writes a corpus whose texts have the words of their labels.

  Args:
    folder: the new folder.
    rows: split -> labels of each document.
    labels: descriptors.
    zones: names of the zones; ('text',) for bare text.
    texts: label -> text of the documents whose first label it is.
  """
  folder.mkdir(parents=True)
  if labels:
    lines = (json.dumps(label_row(label)) for label in labels)
    (folder / 'labels.jsonl').write_text('\n'.join(lines) + '\n')
  for name, split in rows.items():
    with (folder / f'{name}.jsonl').open('w') as file:
      for i, row in enumerate(split):
        text = f'{" ".join(row)} {WORDS[i % 8]} {WORDS[(3 * i + 1) % 8]}'
        text = (texts or {}).get(row[0] if row else '', text)
        parts = {'zones': {zone: f'{zone} {text}' for zone in zones}}
        if zones == ('text',):
          parts = {'text': text}
        file.write(json.dumps({'id': f'{i}', **parts, 'labels': row}) + '\n')
  return folder


@pytest.fixture
def source(tmp_path):
  """A corpus with a hierarchy."""
  return write_corpus(tmp_path / 'source', ROWS, TAXONOMY)


@pytest.fixture
def plain(tmp_path):
  """A corpus without descriptors and without zones, of 12 labels."""
  names = [f'l{i}' for i in range(12)]
  pairs = [(names[i % 11], names[(5 * i) % 7 + 3]) for i in range(30)]
  train = [tuple(dict.fromkeys(row)) for row in pairs]
  rows = {'train': train, 'test': [('l11', 'l2'), ()]}
  return write_corpus(tmp_path / 'plain', rows, zones=('text',))


def config_of(folder, kind=JsonlData, **fields):
  tokens = TfidfConfig(min_count=1)
  return Config(data=kind(dir=str(folder), tokens=tokens, **fields))


@pytest.fixture
def moved(tmp_path):
  """Transfers a corpus, and returns the new folder and the printed lines."""

  def move(source, target, name, kind=JsonlData, data=None, **options):
    output = tmp_path / name
    request = TransferRequest(Target(target), str(output), **options)
    config = config_of(source, kind, **(data or {}))
    lines = transfer(config, request)
    return output, lines

  return move


def contents(folder, kind=JsonlData):
  """Returns all that a corpus consists of."""
  raw = config_of(folder, kind).data.read()
  splits = {
    name: [
      (id_, dict(document.zones), document.labels)
      for id_, document in zip(split.ids, split.documents, strict=True)
    ]
    for name, split in raw.splits.items()
  }
  return splits, {label.id: label for label in raw.labels}


def without_parents(labels):
  return {
    id_: dataclasses.replace(label, parents=()) for id_, label in labels.items()
  }


def gold_of(splits, name='train'):
  return [labels for _, _, labels in splits[name]]


HTC, LEAVES, CLOSED = Form.HTC, KeptLabels.LEAVES, KeptLabels.CLOSED
