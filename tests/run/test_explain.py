"""Why labels are predicted: words, their places and weights."""

import copy
import dataclasses
import json

from flax import nnx
import jax
import numpy as np
import pytest

from tests.run.tagging import read_rows, write_rows
from xjax.core.errors import ConfigError
from xjax.core.mesh import put_batch
from xjax.core.ranking import Query
from xjax.core.types import PAD
from xjax.data.documents import Documents
from xjax.data.load import load_corpus
from xjax.data.schema import Document
from xjax.data.text.words import split_words
from xjax.models.neural.neural_plan import plan_neural
from xjax.networks.heads.ova import OneVsAllConfig
from xjax.report.page.explanation_page import explanation_page
from xjax.run.open_run import open_run
from xjax.run.predict_file import predict_file

ODD = 'İl "Nipa" <MANI> cafe\u0301, gipu! 2003/87 fati'
LONG = 'mani nipa ' * 20
K = 3  # everywhere: each length of lists is a program to compile


@pytest.fixture(scope='module')
def predictor(finished):
  return open_run(finished.workdir)


@pytest.fixture(scope='module')
def documents(config):
  split = load_corpus(config.data, config.seed).split('dev')
  return [split.documents[row] for row in range(len(split))]


def test_the_weights_are_those_by_which_it_was_scored(predictor, documents):
  scorer, seen = predictor.scorer, 0
  params = jax.tree.map(np.asarray, scorer.params)
  output, bias = (np.asarray(params.head[x][...]) for x in ('output', 'bias'))
  texts = Documents.of([*documents, 'nipa', '', LONG])
  rank = scorer.batch_ranker(texts, Query(K))
  for batch in scorer.reader.batches(texts):
    lists = rank(batch)
    ids_BK, scores_BK = lists.ids_GNK[0], lists.scores_GNK[0]
    alpha_BKT = scorer.attention(batch, ids_BK)
    np.testing.assert_allclose(alpha_BKT.sum(axis=2), 1, atol=1e-5)
    beyond = np.arange(alpha_BKT.shape[2]) >= batch.lengths_B[:, None, None]
    assert not (alpha_BKT * beyond).any()
    # v_l = sum_t alpha_tl h_t, and the logit v_l . w_l + b_l.
    hidden_BTD = hidden(predictor, batch)
    vector_BKD = alpha_BKT @ hidden_BTD
    logits = (vector_BKD * output[ids_BK]).sum(axis=2) + bias[ids_BK]
    np.testing.assert_allclose(logits, scores_BK, atol=1e-5)
    seen += batch.mask_B.sum()
  assert seen == len(documents) + 3


def hidden(predictor, batch):
  mesh = predictor.scorer.mesh
  words = len(predictor.workdir.vocabulary())
  plan = plan_neural(predictor.config, predictor.space, words, mesh)
  with jax.set_mesh(mesh):
    features = jax.jit(
      lambda params, batch: nnx.merge(plan.graphdef, params).features(batch)
    )(predictor.scorer.params, put_batch(batch, mesh))
  return np.asarray(features.hidden_BTD)


def test_all_words_of_a_text_and_no_more(predictor):
  (labels,) = predictor.explain([ODD], K, 99)
  for label in labels:
    words = [x.word for x in sorted(label.why, key=lambda x: x.at)]
    assert words == 'İl Nipa MANI cafe\u0301 gipu 2003 87 fati'.split()
    assert sum(x.weight for x in label.why) == pytest.approx(1, abs=1e-5)
  longest = predictor.config.data.tokens.max_tokens
  (labels,) = predictor.explain([LONG], K, 99)
  assert len(labels[0].why) == longest
  assert max(x.at[1] for x in labels[0].why) == longest * 5 - 1
  (labels,) = predictor.explain(['?!'], K, 5)
  assert labels[0].why == ()
  assert predictor.explain([], K, 5) == []


def test_it_knows_the_zone(predictor):
  body = Document('d', {'title': 'nipa', 'empty': '', 'body': 'mani gipu'})
  (labels,) = predictor.explain([body], K, 5)
  places = {(x.zone, x.at, x.word) for x in labels[0].why}
  title, body = ('title', (0, 4), 'nipa'), ('body', (0, 4), 'mani')
  assert places == {title, body, ('body', (5, 9), 'gipu')}


def test_lists_that_run_out_and_weights_that_are_kept(predictor):
  texts = ['nipa mani', 'gipu', 'fati fati fati']
  ids = np.full((3, K), PAD, np.int32)
  ids[:, 0] = 1
  attention = predictor.explanations(texts, ids, 2, n_first=2)
  assert attention.at_NKW.shape == (3, K, 2)
  np.testing.assert_allclose(attention.weights_NKW[:, 1:], 0)
  np.testing.assert_allclose(attention.weights_NKW[1, 0], [1, 0], atol=1e-6)
  assert len(attention.first) == 2
  for kept, n_words in zip(attention.first, (2, 1), strict=True):
    np.testing.assert_allclose(kept[0, :n_words].sum(), 1, atol=1e-5)


def test_heads_without_attention_say_which_have_it(predictor):
  config = predictor.config
  model = dataclasses.replace(config.model, head=OneVsAllConfig())
  tokens = dataclasses.replace(config.data.tokens, by_zone=True)
  data = dataclasses.replace(config.data, tokens=tokens)
  without = 'OneVsAllConfig cannot be explained.*: .*LabelAttentionConfig'
  for change, says in (
    ({'model': model}, without),
    ({'data': data}, 'attend to zones'),
  ):
    scorer = copy.copy(predictor.scorer)
    scorer.run = dataclasses.replace(
      predictor.run, config=dataclasses.replace(config, **change)
    )
    other = dataclasses.replace(predictor, scorer=scorer)
    with pytest.raises(ConfigError, match=says):
      other.explain(['nipa'])


@pytest.fixture
def tag(finished, tmp_path):
  def run(rows, output='out.jsonl', **more):
    source = write_rows(tmp_path / 'in.jsonl', rows)
    path = str(tmp_path / output) if output != '-' else '-'
    return tmp_path / output, predict_file(
      finished.workdir, str(source), path, K, **more
    )

  return run


def test_lines_and_page_of_a_file(tag, predictor):
  rows = [{'text': ODD}, {'id': 'b', 'zones': {'t': 'nipa', 'u': 'mani'}}]
  rows[1]['labels'] = [predictor.predict(['nipa\nmani'], K)[0][0].id]
  path, none = tag(rows, 'plain.jsonl')
  plain = read_rows(path)
  assert none is None and not path.with_suffix('.html').exists()
  path, shown = tag(rows, explain=2)
  lines = read_rows(path)
  for row in lines:
    for label in row['labels']:
      fields = ['word', 'weight', 'zone', 'at']
      assert [list(x) for x in label['why']] == [fields] * 2
      for word in label.pop('why'):
        assert isinstance(word['at'][0], int)
        assert split_words(word['word'])
  assert lines == plain
  assert shown.path == path and shown.n_documents == 2 and shown.words == 2
  first, second = shown.documents
  assert first.document.zones == {'text': ODD} and len(first.words) == 8
  assert [x.is_gold for x in first.labels] == [None] * K
  assert [x.is_gold for x in second.labels] == [True, False, False]
  for one in shown.documents:
    for label in one.labels:
      assert label.weights_T.shape == (len(one.words),)
      assert label.weights_T.sum() == pytest.approx(1, abs=1e-5)
  assert '&lt;<span class="word' in explanation_page(shown)


def test_a_stream_has_no_page(tag, capsys):
  _, shown = tag([{'text': 'nipa mani'}], '-', explain=1)
  assert shown is None
  (line,) = capsys.readouterr().out.splitlines()
  assert all(len(x['why']) == 1 for x in json.loads(line)['labels'])


def test_a_page_shows_the_first_documents(tag, monkeypatch):
  monkeypatch.setattr('xjax.run.tagger._SHOWN', 2)
  _, shown = tag([{'text': f'nipa {"mani " * n}'} for n in range(5)], explain=1)
  assert [x.document.id for x in shown.documents] == ['line-1', 'line-2']
  assert shown.n_documents == 5
