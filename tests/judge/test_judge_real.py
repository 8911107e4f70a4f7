"""Checks what papers say of EURLEX57K, on its own training and dev splits."""

import numpy as np
import pytest

from xjax.core.types import Ragged
from xjax.data.schema import Label, LabelSpace, Split
from xjax.judge.criteria import Criteria
from xjax.judge.files.gold import read_gold
from xjax.judge.judge import judge
from xjax.judge.metrics.protocols import LMTC, XJAX
from xjax.judge.predict import popularity

pytestmark = pytest.mark.real_data
DEPTH = 60  # more than any document has gold labels


@pytest.fixture(scope='module')
def judged(data_dir):
  """Metrics of the popularity prior on dev, labels as the whole set has."""
  folder = data_dir / 'eurlex57k'
  labels = sorted((folder / 'label_universe.txt').read_text().split())
  index = {id_: i for i, id_ in enumerate(labels)}

  def placed(name):
    found = read_gold(folder / f'{name}.jsonl.gz')
    of = np.array([index[id_] for id_ in found.labels], np.int32)
    return found, Ragged(found.rows.indptr, of[found.rows.values])

  _, train = placed('train')
  dev, gold = placed('dev')
  counts = np.bincount(train.values, minlength=len(labels)).astype(np.int32)
  space = LabelSpace(
    labels=tuple(Label(id_) for id_ in labels),
    train_counts=counts,
    n_train=len(train),
    n_trained=len(labels),
  )
  split = Split('dev', dev.doc_ids, gold, (), '')
  assert gold.lengths.max() < DEPTH
  criteria = Criteria((1, 5), protocols=(XJAX, LMTC))
  return judge(popularity(space, split, DEPTH), criteria)


@pytest.mark.parametrize(
  ('protocol', 'counts'),
  [('xjax', (746, 3362, 163)), ('lmtc', (739, 3369, 163))],
)
def test_slices(judged, protocol, counts):
  # See Chalkidis et al. 2019, section 3, and their code.
  slices = judged[protocol]
  found = [slices[n]['n_labels'] for n in ('frequent', 'few', 'zero')]
  assert tuple(found) == counts and slices['all']['n_labels'] == 4271
  assert slices['all']['n_docs'] == 6000
