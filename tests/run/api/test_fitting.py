"""xjax.fit: training on documents in memory."""

import dataclasses
import json
import re

import numpy as np
import pytest
from scipy import sparse

from tests.fixtures.frames import Frame
from tests.fixtures.tagged_texts import N
import xjax
from xjax.core.errors import ConfigError, DataError
from xjax.data.schema import Document
from xjax.models.contract import Config
from xjax.run.named_configs import named_config


def test_the_same_call_resumes_and_another_call_changes_nothing(
  train, tmp_path
):
  texts, labels = train
  model = xjax.fit(texts, labels, workdir=tmp_path, verbose=False)
  before = {
    path: path.stat().st_mtime_ns for path in (tmp_path / 'model').iterdir()
  }
  again = xjax.fit(texts, labels, workdir=tmp_path, verbose=False)
  assert again.predict(texts) == model.predict(texts)
  data = sorted((tmp_path / 'data').iterdir())
  contents = [path.read_bytes() for path in data]
  with pytest.raises(ConfigError, match='made from other texts or labels'):
    xjax.fit(texts[1:], labels[1:], workdir=tmp_path, verbose=False)
  assert sorted((tmp_path / 'data').iterdir()) == data
  assert [path.read_bytes() for path in data] == contents
  assert before == {path: path.stat().st_mtime_ns for path in before}
  assert not [p for p in tmp_path.iterdir() if p.name.startswith('.')]


def test_a_run_in_a_workdir_gets_a_model_card(train, tmp_path):
  texts, labels = train
  rest = texts[200:], labels[200:]
  for name, dev, chosen in (('a', rest, 'the data'), ('b', 0.2, 'xjax, by')):
    folder = tmp_path / name
    xjax.fit(texts[:200], labels[:200], workdir=folder, dev=dev, verbose=False)
    card = (folder / 'README.md').read_text()
    assert '### dev' in card and 'Command:' not in card
    assert re.search(rf'\| dev \| 40 \| 2.00 \| {chosen}', card)
    when = json.loads((folder / 'run.json').read_text())['finished'][:10]
    assert f'finished the run on {when}.' in card


@pytest.mark.parametrize(
  ('texts', 'labels', 'message'),
  [
    (['a', 'b'], [['x']], 'texts has 2 documents, but labels has labels of 1'),
    (['a', ' '], [['x'], []], r'texts\[1\] has no text'),
    ([], [], 'texts is empty'),
    ('a', ['x'], 'texts is one text'),
    (['a'], None, 'labels is None: give the labels'),
    (['a', 'b'], [['x'], None], r'labels\[1\] is None'),
    ([Document('i', {'t': 'a'}, ('x',))] * 2, None, r"texts\[1\]: the id 'i'"),
  ],
)
def test_data_that_cannot_train_is_one_error(texts, labels, message, tmp_path):
  with pytest.raises(DataError, match=message):
    xjax.fit(texts, labels, workdir=tmp_path / 'run', verbose=False)
  assert not (tmp_path / 'run').exists()


@pytest.mark.parametrize(
  'dev', [-0.1, 1, True, 'x', (['a'],), np.float32(2), np.nan]
)
def test_dev_is_a_pair_or_a_share(dev):
  with pytest.raises(ConfigError, match=re.escape(f'dev={dev!r}: ')):
    xjax.fit(['a'], [['x']], dev=dev, verbose=False)


def test_a_config_must_be_a_config(train):
  with pytest.raises(ConfigError, match="must be 'auto', the name of a config"):
    xjax.fit(*train, config=3)


def test_a_config_keeps_its_model_tokens_and_zones(train):
  config = named_config('own_linear')
  tokens = dataclasses.replace(config.data.tokens, max_ngram=1)
  data = dataclasses.replace(config.data, zones=('body',), tokens=tokens)
  config = dataclasses.replace(config, data=data, seed=3)
  texts, labels = train
  frame = Frame(title=['same'] * N, body=texts)
  model = xjax.fit(frame, labels, config, dev=0, verbose=False)
  assert isinstance(model.config, Config)
  assert model.config.seed == 3
  assert model.config.data.tokens == tokens
  framed = Frame(title=['l1'], body=['l2 word1'])
  with pytest.warns(UserWarning, match=r"'title'\] are ignored"):
    assert model.predict(framed) == model.predict('l2 word1')


@pytest.mark.parametrize(
  'fitted',
  [
    lambda x: x,
    lambda x: Frame(text=x),
    lambda x: [Document(str(i), {'text': t}) for i, t in enumerate(x)],
    lambda x: Frame(text=x, title=['same'] * len(x)),
    lambda x: Frame(Überschrift=['x'] * len(x), текст=x),
  ],
)
def test_only_the_columns_of_training_are_read(train, fitted):
  texts, labels = train
  model = xjax.fit(fitted(texts), labels, dev=0, verbose=False)
  frame = fitted(texts[:3])
  if not isinstance(frame, Frame):
    frame = Frame(text=texts[:3])
  columns = {name: [*frame[name]] for name in frame.columns}
  expected = model.predict(frame)
  leaky = Frame(labels=['l1', 'l2', 'l3'], id=[1, 2, 3], **columns)
  with pytest.warns(UserWarning, match=r"'labels', 'id'\] are ignored"):
    assert model.predict(leaky) == expected
  with pytest.warns(UserWarning, match='are ignored'):
    assert model.evaluate(leaky, labels[:3]) == model.evaluate(
      frame, labels[:3]
    )
  turned = dict(reversed(columns.items()))
  assert model.predict(Frame(**turned)) == expected
  name, cells = turned.popitem()
  if isinstance(fitted(texts), Frame):
    wrong = Frame(**turned, other=cells)
    message = f'no column {name!r}, which the model was trained on; its columns'
    with pytest.raises(DataError, match=message):
      model.predict(wrong)


def test_other_zones_of_documents_are_not_read(train):
  texts, labels = train
  documents = [
    Document(str(i), {'title': t, 'body': t}) for i, t in enumerate(texts)
  ]
  model = xjax.fit(documents, labels, dev=0, verbose=False)
  more = Document('x', {'labels': 'l1 l2', **documents[0].zones})
  assert model.predict(more) == model.predict(documents[0])


@pytest.mark.parametrize(
  ('column', 'error', 'message'),
  [
    ('Labels', DataError, "the column 'Labels', which would be read as text"),
    ('label', DataError, "the column 'label', which would be read as text"),
    ('category', UserWarning, "'category' alone tells the labels of all"),
    ('Thema', UserWarning, "'Thema' alone tells the labels of all"),
  ],
)
def test_labels_among_the_texts_are_noticed(train, column, error, message):
  texts, labels = train
  frame = Frame(**{'text': texts, column: ['+'.join(x) for x in labels]})
  with pytest.raises(error, match=message):  # warnings are errors in tests
    xjax.fit(frame, labels, dev=0, verbose=False)


def test_a_matrix_of_features_trains_a_model(features):
  rows, hot, ids = features
  model = xjax.fit(rows, ids, dev=0, verbose=False)
  names = ['name 0', 'name 1', 'name 2']
  assert [label.id for label in model.labels] == names
  metrics = model.evaluate(rows, ids)
  assert metrics['all']['P@1'] > 0.8
  assert model.evaluate(rows.toarray(), hot) == metrics
  same = xjax.fit(rows.toarray(), hot, dev=0, label_names=names, verbose=False)
  assert same.predict(rows) == model.predict(rows.tocoo())
  plain, scaled = (
    [[label.id for label in labels] for labels in model.predict(x)]
    for x in (rows, rows * 7)
  )
  assert plain == scaled


def test_labels_of_features_keep_their_names(features, tmp_path):
  rows, hot, _ = features
  apple = xjax.Label('a', 'Apple', ('apples',))
  names = [apple, xjax.Label('b', 'Bee', parents=('a',)), 'c']
  workdir = tmp_path / 'run'
  model = xjax.fit(rows, hot, label_names=names, workdir=workdir, verbose=False)
  assert model.labels[0] == apple and model.labels[1].parents == ('a',)
  assert model.predict(rows[:1], k=3)[0][0].name in ('Apple', 'Bee', 'c')
  assert xjax.load(workdir).labels[0].name == 'Apple'


@pytest.mark.parametrize('kind', ['texts', 'features'])
def test_equal_documents_are_in_one_split(train, features, kind, tmp_path):
  texts, labels = train if kind == 'texts' else features[::2]
  if kind == 'texts':
    texts, labels = texts[:60] * 2, labels[:60] * 2
  else:
    texts, labels = sparse.vstack([texts, texts]), labels * 2
  n = len(labels)
  runs = []
  for seed in (0, 1):
    path = tmp_path / str(seed)
    xjax.fit(texts, labels, dev=0.2, seed=seed, workdir=path, verbose=False)
    ours, dev = (
      {*map(int, (path / 'splits' / name).read_text().split())}
      for name in ('train.txt', 'dev.txt')
    )
    runs.append(dev)
    assert len(dev) == n // 5 and ours | dev == set(range(n))
    assert not {i % (n // 2) for i in ours} & {i % (n // 2) for i in dev}
  assert runs[0] != runs[1]


def test_too_few_documents_have_no_dev(train):
  texts, labels = train
  with pytest.warns(UserWarning, match='8 documents, too few for dev=0.1: sc'):
    few = xjax.fit(texts[:8], labels[:8], verbose=False)
  assert few.config.data.dev_share == 0
  with pytest.raises(DataError, match='8 documents are too few to draw splits'):
    xjax.fit(texts[:8], labels[:8], dev=0.5, verbose=False)


def test_lists_of_integers_are_labels(train):
  texts, labels = train
  numbers = [[int(label.strip('l')) for label in ids] for ids in labels]
  model = xjax.fit(texts, numbers, dev=0, verbose=False)
  ids = {str(number) for row in numbers for number in row}
  assert {label.id for label in model.labels} == ids
  with pytest.raises(DataError, match=r'labels\[0\]\[0\] is of type float'):
    xjax.fit(texts, [[1.5]] * len(texts), verbose=False)


def test_the_log_of_fit_is_shown_only_if_wanted(train, capfd):
  xjax.fit(*train, dev=0, verbose=False)
  assert capfd.readouterr() == ('', '')


def test_a_frame_of_dev_has_the_columns_of_the_texts(train):
  texts, labels = train
  frame = Frame(a=texts, b=texts)
  more = Frame(a=texts, b=texts, c=[''] * len(texts))
  with pytest.warns(UserWarning, match=r"dev\[0\]: the columns \['c'\] are"):
    xjax.fit(frame, labels, dev=(more, labels), verbose=False)
  with pytest.raises(DataError, match=r"dev\[0\] has no column 'b'"):
    xjax.fit(frame, labels, dev=(Frame(a=texts), labels), verbose=False)
