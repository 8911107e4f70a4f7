"""The files that the commands of the pages read, small and made from a seed."""

import dataclasses
import pathlib

import numpy as np
from scipy import sparse

from tests.fixtures.shrink import shrink
from tests.fixtures.vector_files import json_lines
from xjax.data.formats.synthetic import SyntheticData, make_synthetic
from xjax.data.schema import Document
from xjax.data.tokens_config import SubwordsConfig
from xjax.models.contract import Config
from xjax.models.neural.neural_model import NeuralModel
from xjax.networks.encoders.bert import BertConfig
from xjax.networks.encoders.encoder import NoEmbedding
from xjax.run.export_encoder import export_encoder
from xjax.run.fit import fit

DIM = 768  # of frozen features
PIECES = 256  # that the encoder reads

_CORPUS = SyntheticData(n_train=200, n_dev=40, n_test=40, n_labels=60)
_N_DOCS, _N_TRAIN, _N_LABELS = 40, 200, 30  # of files of the XC repository


def write_documents(folder: pathlib.Path) -> None:
  """Writes my_data/, documents.csv, docs.jsonl and vectors of the documents."""
  labels, splits = make_synthetic(_CORPUS)
  data, rng = folder / 'my_data', np.random.default_rng(0)
  data.mkdir()
  rows = ({'id': x.id, 'name': x.name, 'alt': list(x.alt)} for x in labels)
  json_lines(data / 'labels.jsonl', rows)
  for split, documents in splits.items():
    json_lines(data / f'{split}.jsonl', map(record, documents))
    write_vectors(data / split, [x.id for x in documents], rng)
  new = splits['test'][:5]
  rows = [{'id': x.id, 'text': ' '.join(x.zones.values())} for x in new]
  json_lines(folder / 'docs.jsonl', rows)
  (folder / 'new').mkdir()
  write_vectors(folder / 'new' / 'docs', [x.id for x in new], rng)
  table = ['id,text,labels']
  for document in splits['train']:
    text = ' '.join(document.zones.values())
    table.append(f'{document.id},"{text}",{";".join(document.labels)}')
  (folder / 'documents.csv').write_text('\n'.join(table) + '\n')
  lines = [f'{row["id"]},"{row["text"]}"' for row in rows]
  (folder / 'new.csv').write_text('\n'.join(['id,text', *lines]) + '\n')


def record(document: Document) -> dict:
  """Returns a document as a line of JSON lines has it."""
  labels = list(document.labels)
  return {'id': document.id, 'zones': dict(document.zones), 'labels': labels}


def write_vectors(
  stem: pathlib.Path, ids: list[str], rng: np.random.Generator
) -> None:
  """Writes random vectors as another encoder might have made them."""
  vectors = rng.standard_normal((len(ids), DIM), np.float32)
  np.save(f'{stem}.npy', vectors)
  pathlib.Path(f'{stem}.ids.txt').write_text('\n'.join(ids) + '\n')


def write_xc_files(folder: pathlib.Path) -> None:
  """Writes scores of another system, its gold, and a folder of features."""
  rng = np.random.default_rng(0)
  shares = np.linspace(0.4, 0.02, _N_LABELS)
  gold = rng.random((_N_DOCS, _N_LABELS)) < shares
  train = rng.random((_N_TRAIN, _N_LABELS)) < shares
  scores = rng.random(gold.shape) * (rng.random(gold.shape) < 0.8) + gold / 3
  sparse.save_npz(folder / 'scores.npz', sparse.csr_matrix(scores))
  children = '\t'.join(map(str, range(2, _N_LABELS)))
  (folder / 'taxonomy.txt').write_text(f'Root\t0\t1\n0\t{children}\n')
  (folder / 'bibtex').mkdir()
  for name, file, labels in (
    ('tst_X_Y', 'test', gold),
    ('trn_X_Y', 'train', train),
  ):
    features = rng.random((len(labels), 50)) * (rng.random((50,)) < 0.5)
    text = xc_text(labels, features)
    (folder / f'{name}.txt').write_text(text)
    (folder / 'bibtex' / f'{file}.txt').write_text(text)


def xc_text(labels: np.ndarray, features: np.ndarray) -> str:
  """Returns a feature file of the Extreme Classification Repository."""
  lines = [f'{len(labels)} {features.shape[1]} {labels.shape[1]}']
  for gold, row in zip(labels, features, strict=True):
    ids = ','.join(map(str, np.flatnonzero(gold)))
    pairs = ' '.join(f'{i}:{row[i]:.3f}' for i in np.flatnonzero(row))
    lines.append(f'{ids} {pairs}')
  return '\n'.join(lines) + '\n'


def write_encoder(folder: pathlib.Path, run: pathlib.Path) -> None:
  """Writes a tiny encoder in Hugging Face's layout; run is its workdir."""
  model = NeuralModel(NoEmbedding(), BertConfig())
  config = shrink(
    Config(data=SyntheticData(tokens=SubwordsConfig()), model=model)
  )
  tokens = SubwordsConfig(max_tokens=PIECES, buckets=(PIECES,))
  config.data = dataclasses.replace(config.data, tokens=tokens)
  fit(config, run)
  export_encoder(run, folder)
