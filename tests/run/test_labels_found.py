"""Labels that a run never saw, added by name, in the documents about them."""

import numpy as np
import pytest

from tests.run.tagging import read_rows, tag
from xjax.data.config import WordsConfig
from xjax.data.formats.synthetic import SyntheticData
from xjax.data.load import load_corpus
from xjax.models.contract import Config
from xjax.models.neural.neural_model import NeuralModel
from xjax.networks.encoders.cnn import CNNConfig
from xjax.networks.encoders.layers import EmbeddingConfig
from xjax.networks.heads.unified import UnifiedConfig
from xjax.run.fit import fit
from xjax.train.neural_train import NeuralTrain


def config_of(labels):
  tokens = WordsConfig(max_tokens=64, buckets=(64,), min_count=1)
  words = EmbeddingConfig(32, 0.1, 0.0, init_scale=1.0, frozen=True)
  encoder = CNNConfig(filters=64, dropout=0.1)
  sizes = {'n_train': 800, 'n_dev': 200, 'n_test': 0}
  when = dict.fromkeys(('steps', 'checkpoint_every', 'judge_every'), 250)
  return Config(
    data=SyntheticData(**sizes, labels=labels, workers=1, tokens=tokens),
    model=NeuralModel(words, encoder, head=UnifiedConfig(hidden_labels=8)),
    train=NeuralTrain(batch_size=32, learning_rate=5e-3, **when),
  )


@pytest.mark.thorough
def test_their_documents_rank_them_high(tmp_path):
  corpus = load_corpus(config_of('corpus').data, 0)
  space, dev = corpus.label_space, corpus.split('dev')
  new = {int(i) for i in np.argsort(-space.train_counts)[3:90:6]}
  known = [id_ for i, id_ in enumerate(space.ids) if i not in new]
  (tmp_path / 'known.txt').write_text('\n'.join(known))
  config = config_of(str(tmp_path / 'known.txt'))
  workdir = fit(config, tmp_path / 'run').workdir
  names = {space.labels[i].name: space.ids[i] for i in new}
  (tmp_path / 'new.txt').write_text('\n'.join(names))
  documents = [dev.documents[row] for row in range(len(dev))]
  rows = [{'zones': dict(d.zones)} for d in documents]
  out = tag(workdir, tmp_path, rows, 5, labels=str(tmp_path / 'new.txt'))
  about, others = [], []
  for document, row in zip(documents, read_rows(out), strict=True):
    top = {label['id'] for label in row['labels']}
    for label, id_ in names.items():
      (about if id_ in document.labels else others).append(label in top)
  assert len(about) > 100
  # In the top 5 of 200: a fifth, as against one document in seventy.
  assert np.mean(about) > 0.1 > 4 * np.mean(others)
