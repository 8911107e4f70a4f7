"""Facts of documents, such as authors and dates: what they say of labels."""

import dataclasses
import datetime
import json

import numpy as np
import pytest

from tests.models.stack.test_ranker_training import pairs_with_other_gold
from xjax.configs.own_documents import auto
from xjax.core.errors import ConfigError
from xjax.core.ranking import Query
from xjax.core.types import PAD
from xjax.data.documents import Documents
from xjax.data.files.cells import as_fact
from xjax.data.formats.jsonl import JsonlData
from xjax.data.formats.own import OwnData
from xjax.data.load import load_corpus, read_input
from xjax.data.schema import Document
from xjax.data.tokens_config import TfidfConfig
from xjax.models.config_check import check_config
from xjax.models.contract import Config
from xjax.models.ensemble.ensemble_model import EnsembleModel
from xjax.models.linear.listed import ListedLinear
from xjax.models.lookup.values import ValuesModel
from xjax.models.stack.boosted import BoostedTrees
from xjax.models.stack.pair_features import NONE
from xjax.models.stack.proposers import facts_proposer, neighbours_proposer
from xjax.models.stack.stack_model import StackModel, StackTrain
from xjax.run.auto import choose
from xjax.run.fit import fit
from xjax.run.open_run import open_run
from xjax.train.train_config import NoTrain

LABELS = 'fish', 'oil', 'law', 'tax'


def rows(n, seed):
  """Documents whose authors tell the labels, but whose texts do not."""
  rng = np.random.default_rng(seed)
  for number in range(n):
    authors = sorted(rng.choice(4, rng.integers(1, 3), replace=False).tolist())
    words = rng.choice(['water', 'stone', 'tree', 'wind', 'sun', 'moon'], 4)
    yield {
      'id': f'{seed}-{number}',
      'text': ' '.join(words),
      'authors': [f'Author {x}' for x in authors],
      'date': f'{2000 + number % 5}-01-02',
      'labels': [LABELS[x] for x in authors],
    }


@pytest.fixture
def folder(tmp_path):
  for name, n in ('train', 120), ('dev', 40):
    lines = [json.dumps(row) for row in rows(n, n)]
    (tmp_path / f'{name}.jsonl').write_text('\n'.join(lines))
  return tmp_path


def data_of(folder, **settings):
  usual = {'zones': ('text',), 'facts': ('authors', 'date')}
  return JsonlData(dir=str(folder), tokens=TfidfConfig(), **usual | settings)


def stack(folder, **settings):
  near = neighbours_proposer(depth=2)
  ranker = BoostedTrees(models=1, trees=30, least_pairs=5)
  model = StackModel((near, facts_proposer()), ranker=ranker, folds=2)
  data = data_of(folder, **settings)
  return Config(data=data, model=model, train=StackTrain())


def test_facts_are_read(folder):
  corpus = load_corpus(data_of(folder), 0)
  zones = corpus.splits['train'].documents[0].zones
  assert list(zones) == ['text', 'authors', 'date']
  assert set(zones['authors'].split('\n')) <= {f'Author {x}' for x in range(4)}
  assert zones['date'] == '2000-01-02'
  new = folder / 'new.jsonl'
  new.write_text('{"text": "sun", "authors": "A"}\n{"zones": {"text": "x"}}')
  read = [dict(x.zones) for x in read_input(data_of(folder), str(new))]
  assert read[0] == {'text': 'sun', 'authors': 'A', 'date': ''}
  assert read[1] == {'text': 'x', 'authors': '', 'date': ''}


def test_equal_texts_stay_equal_with_other_facts(folder):
  other = folder / 'other'
  other.mkdir()
  lines = [{**row, 'date': 'unknown'} for row in rows(120, 120)]
  (other / 'train.jsonl').write_text('\n'.join(map(json.dumps, lines)))
  first, second = (
    load_corpus(data_of(x), 0).splits['train'] for x in (folder, other)
  )
  np.testing.assert_array_equal(first.text_digests, second.text_digests)
  assert first.digest != second.digest


def test_columns_of_a_table(tmp_path):
  lines = ['text,labels,journal,year']
  for row in rows(30, 1):
    labels, authors = ';'.join(row['labels']), ' | '.join(row['authors'])
    lines.append(','.join([row['text'], labels, authors, row['date'][:4]]))
  path = tmp_path / 'train.csv'
  path.write_text('\n'.join(lines))
  facts = 'journal', 'year'
  data = OwnData(dir=str(path), facts=facts, tokens=TfidfConfig())
  data = data.with_guesses()
  document = load_corpus(data, 0).splits['train'].documents[0]
  assert list(document.zones) == ['text', 'journal', 'year']
  (read, *_) = read_input(data, str(path))
  assert read.zones['journal'].startswith('Author')
  with pytest.raises(ConfigError, match="data.facts: there is no zone 'jurnal"):
    load_corpus(dataclasses.replace(data, facts=('jurnal',)), 0)


@pytest.mark.parametrize(
  ('settings', 'message'),
  [
    ({'zones': ('txt',)}, "data.zones: there is no zone 'txt'"),
    ({'facts': ('author',)}, "data.facts: there is no zone 'author'"),
  ],
)
def test_wrong_names(folder, settings, message):
  with pytest.raises(ConfigError, match=message):
    load_corpus(data_of(folder, **settings), 0)


def test_other_models_read_no_facts(folder):
  config = Config(data=data_of(folder), model=ValuesModel(), train=NoTrain())
  with pytest.raises(ConfigError, match='only a StackModel reads facts'):
    check_config(config)


def test_shares_by_definition(folder, tmp_path):
  tokens = facts_proposer().tokens
  data = data_of(folder, zones=('authors',), facts=())
  for split in 'train', 'dev':  # a zone must be text here
    path = folder / f'{split}.jsonl'
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    for row in lines:
      authors = '\n'.join(row['authors'])
      row['zones'] = {'text': row.pop('text'), 'authors': authors}
    path.write_text('\n'.join(map(json.dumps, lines)))
  data = dataclasses.replace(data, tokens=tokens)
  config = Config(data=data, model=ValuesModel(smoothing=3.0), train=NoTrain())
  result = fit(config, tmp_path / 'run')
  split, gold = result.corpus.splits['train'], result.corpus.trained_gold
  has_LN = np.zeros((4, len(gold)))
  for row in range(len(gold)):
    has_LN[gold[row], row] = 1
  values = [set(x.text().split('\n')) for x in split.documents]
  usual_L = (has_LN.sum(axis=1) + 0.5) / (len(gold) + 1)
  scorer = open_run(result.workdir).scorer
  text = 'Author 1\nAuthor 3\nAuthor 9'
  document = Document('', {'authors': text})
  lists = scorer.rank(Documents([document]), Query(4, details=2))
  shares, hits = [], 0
  for value in text.split('\n')[:2]:
    own = np.array([value in x for x in values])
    hits = hits + has_LN[:, own].sum(axis=1)
    shares.append((has_LN[:, own].sum(axis=1) + 3 * usual_L) / (own.sum() + 3))
  share_L = np.mean(shares, axis=0)
  ids = lists.ids_GNK[0, 0]
  assert ids[0] != PAD
  ids = ids[ids != PAD]
  np.testing.assert_allclose(
    lists.scores_GNK[0, 0, : len(ids)], share_L[ids], rtol=1e-5
  )
  wanted = np.stack([np.log(share_L / usual_L), np.log1p(hits)], axis=1)
  details = lists.details_GNKD[0, 0, : len(ids)]
  np.testing.assert_allclose(details, wanted[ids], rtol=1e-5)
  assert scorer.rank(Documents(['?']), Query(4)).ids_GNK.max() == PAD
  data = dataclasses.replace(data, zones=())
  with pytest.raises(ConfigError, match='name the zones with values'):
    fit(dataclasses.replace(config, data=data), tmp_path / 'all')


@pytest.mark.lightgbm
def test_a_stack_learns_from_facts(folder, tmp_path):
  result = fit(stack(folder), tmp_path / 'run')
  assert result.metrics['dev']['xjax']['all']['RP@5'] > 0.95
  model = open_run(result.workdir)
  stages = model.scorer.stages
  zones = {'text': 'sun', 'authors': 'moon', 'date': ''}
  assert set(stages) == {'neighbours', 'facts'}
  # Texts are read without facts.
  words = stages['neighbours'].featuriser.words(Document('', zones))
  assert [word.zone for word in words] == ['text']
  path = tmp_path / 'new.jsonl'
  path.write_text('{"text": "sun", "authors": ["Author 2"], "date": "2003"}')
  (document,) = read_input(model.config.data, str(path))
  ((label, *_),) = model.explain([document], k=1)
  assert label.id == 'law'
  shares = {part.name: part.weight for part in label.features}
  assert max(shares, key=shares.get).startswith('facts:')
  assert any(name.startswith('label:use in') for name in shares)
  # The labels of a document do not reach it through its facts.
  names, before, after = pairs_with_other_gold(
    result, stack(folder), tmp_path / 'again'
  )
  assert (before[:, names.index('facts:ratio')] > NONE).any()
  np.testing.assert_array_equal(before, after)


@pytest.mark.lightgbm
def test_without_facts_in_documents(folder, tmp_path, caplog):
  """Facts whose values do not repeat are left out."""
  caplog.set_level('INFO', 'absl')
  for name in 'train', 'dev':
    path = folder / f'{name}.jsonl'
    lines = map(json.loads, path.read_text().splitlines())
    lines = [{**x, 'code': f'{name}{i}'} for i, x in enumerate(lines)]
    path.write_text('\n'.join(map(json.dumps, lines)))
  fit(stack(folder, facts=('code',)), tmp_path / 'codes')
  assert 'no value of code is in two training documents' in caplog.text
  config = stack(folder, facts=())
  fit(config, tmp_path / 'none')
  assert caplog.text.count('proposer facts is left out') == 1
  for run in 'codes', 'none':
    assert set(open_run(tmp_path / run).scorer.stages) == {'neighbours'}
  config.model.linear = ListedLinear(('facts',))
  with pytest.raises(ConfigError, match='all of these proposers are left out'):
    fit(config, tmp_path / 'read')


def test_values_of_cells():
  day = datetime.date(2003, 3, 5)
  cells = {
    "['a b', 'c']": 'a b\nc',
    ('x', None, 3): 'x\n3',
    2003.0: '2003',
    0.5: '0.5',
    True: 'true',
    None: '',
    day: '2003-03-05',
    datetime.datetime(2003, 3, 5, 1, 2): '2003-03-05',
  }
  assert [as_fact(cell) for cell in cells] == [*cells.values()]
  assert as_fact([day, {}]) == [day, {}]  # a fault, since it is no text


@pytest.mark.parametrize('fact', ['text', 'labels', 'id', 'authors'])
def test_facts_are_neither_text_nor_labels_nor_twice(folder, fact):
  config = stack(folder, facts=('authors', fact))
  with pytest.raises(ConfigError, match='must be different, and no text'):
    check_config(config)


def test_other_splits_need_no_facts(folder):
  path = folder / 'dev.jsonl'
  lines = [json.loads(line) for line in path.read_text().splitlines()]
  for line in lines:
    del line['authors'], line['date']
  path.write_text('\n'.join(map(json.dumps, lines)))
  space = load_corpus(data_of(folder), 0).label_space
  corpus = load_corpus(data_of(folder), 0, space, ['dev'])
  assert corpus.splits['dev'].documents[0].zones['date'] == ''


def test_auto_reads_facts_if_it_chooses_a_stack(folder, tmp_path):
  data = data_of(folder, zones=())
  config = dataclasses.replace(auto(), data=data)  # too few documents
  result = fit(config, tmp_path / 'run')
  document = result.corpus.splits['train'].documents[0]
  assert list(document.zones) == ['text']
  assert not open_run(result.workdir).config.data.facts
  space = dataclasses.replace(result.corpus.label_space, n_train=600)
  chosen = choose(config, space, check=lambda _: None).config
  assert chosen.data.facts == data.facts


@pytest.mark.lightgbm
def test_a_run_with_facts_is_no_part_of_others(folder, tmp_path):
  fit(stack(folder), tmp_path / 'run')
  model = EnsembleModel((str(tmp_path / 'run'),) * 2)
  config = Config(data=data_of(folder, facts=()), model=model, train=NoTrain())
  with pytest.raises(ConfigError, match='reads facts of documents'):
    fit(config, tmp_path / 'both')


@pytest.mark.lightgbm
def test_texts_without_facts(folder, tmp_path):
  """The text says nothing of facts, whatever the form of the documents."""
  fit(stack(folder), tmp_path / 'run')
  model = open_run(tmp_path / 'run')
  facts = model.scorer.stages['facts']
  text = 'Author 2\n2003-03-05'
  for document in text, Document('', {'text': text}):
    documents = Documents([document])
    assert np.isnan(facts.days(documents)).all()
    assert facts.rank(documents, Query(4)).ids_GNK.max() == PAD
  known = Document('', {'text': 'sun', 'authors': 'A', 'date': '1 May 1990'})
  pages = Document('', {'authors': '1601-1620', 'date': '2003'})
  days = facts.days(Documents([known, pages]))
  found = [datetime.date.fromordinal(int(day)).year for day in days]
  assert found == [1990, 2003]
