import dataclasses
import pathlib
import re

import numpy as np
import pytest

from tests.report.conftest import Reader
from xjax.data.schema import Document
from xjax.data.text.words import WordPlace, document_words
from xjax.judge.prediction_lines import (
  ExplainedDocument,
  ExplainedLabel,
  Explanations,
  WeightedWord,
  weighted_words,
)
from xjax.report.page.explanation_page import explanation_page

TEXT = '<b>One</b> & "two"\nthree İVE three'


def label(id_, weights, **more):
  fields = {'name': f'name {id_}', 'score': 0.456, 'is_gold': None, 'why': ()}
  fields |= more
  return ExplainedLabel(
    id=id_, weights_T=np.asarray(weights, np.float32), **fields
  )


def explained(document, labels, n_words=99):
  """The two words with the largest weights explain each label."""
  words = document_words(document)[:n_words]
  shown = []
  for one in labels:
    at_W = np.argsort(-one.weights_T, kind='stable')[:2]
    why = weighted_words(document, words, at_W, one.weights_T[at_W])
    shown.append(dataclasses.replace(one, why=why))
  return ExplainedDocument(document, words, shown)


@pytest.fixture(scope='module')
def page():
  first = explained(
    Document('d<1>', {'text': TEXT}),
    [
      # b One b two three İVE three
      label('x"', [0, 0.5, 0, 0.25, 0.2, 0.03, 0.02], is_gold=True),
      label('y', [0.01, 0.01, 0.01, 0.01, 0.01, 0.01, 0.94], name=''),
    ],
  )
  zones = Document('two', {'title': 'A b', 'gone': '', 'body': 'c d. e'})
  second = explained(zones, [label('z', [0.3, 0.3, 0.4])], 3)
  empty = explained(Document('none', {'text': '?'}), [label('z', [])])
  bare = explained(Document('bare', {'text': 'a b'}), [])
  shown = (first, second, empty, bare)
  return Explanations(pathlib.Path('X.jsonl'), shown, 1234, 2)


@pytest.fixture(scope='module')
def elements(page):
  return Reader(explanation_page(page))


def test_the_text_is_all_there_and_escaped(elements):
  texts = [x['text'] for x in elements.of('div', 'text')]
  assert texts == [TEXT, 'A b', 'c d. e', '?', 'a b']
  assert [x['text'] for x in elements.of('h3')] == ['title', 'body']
  names = [x['text'] for x in elements.of('h2')]
  assert names == ['d<1>', 'two', 'none', 'bare']
  assert not elements.of('b')


def shaded(elements, document):
  """Returns the words and the buttons of an article."""
  number = int(document.removeprefix('document-'))
  articles = [x for x in elements.found if x['tag'] == 'article']
  begin = elements.found.index(articles[number])
  rest = articles[number + 1 :]
  end = elements.found.index(rest[0]) if rest else len(elements.found)
  inside = elements.found[begin:end]
  words = [
    x for x in inside if x['tag'] == 'span' and 'word' in x['class'].split()
  ]
  buttons = [x for x in inside if x['tag'] == 'button']
  return words, buttons


def test_the_best_label_shades_at_first(elements):
  words, buttons = shaded(elements, 'document-0')
  assert [(x['text'], x['class'], x.get('title')) for x in words] == [
    ('b', 'word', None),  # the other label's
    # The attention times 7 words is 3.5, 1.75 and 1.4.
    ('One', 'word a3 top', '50.0 %'),
    ('two', 'word a2 top', '25.0 %'),
    ('three', 'word a1', '20.0 %'),
    ('three', 'word', None),
  ]
  assert [x['aria-pressed'] for x in buttons] == ['true', 'false']
  assert [x['text'] for x in buttons] == ['name x" 0.46, gold', 'y 0.46']
  assert buttons[0]['title'] == 'x"'
  (why, *_) = elements.of('p', 'why')
  assert why['text'] == buttons[0]['data-why']
  assert why['text'] == 'name x": One 50.0 %, two 25.0 %'


def test_buttons_know_their_words(elements):
  words, buttons = shaded(elements, 'document-0')
  for button in buttons:
    for part in button['data-words'].split():
      at, names, share = part.split(':')
      assert float(share) <= 100 and int(at) < len(words)
      assert re.fullmatch(r'(a[1-8])?\+?(top)?', names)
  first = [x.split(':') for x in buttons[0]['data-words'].split()]
  shades = {words[int(at)]['text']: names for at, names, _ in first}
  assert shades == {'One': 'a3+top', 'two': 'a2+top', 'three': 'a1'}
  # The first of several equal weights is marked, though it has no shade.
  second = [x.split(':') for x in buttons[1]['data-words'].split()]
  assert [(words[int(at)]['text'], *rest) for at, *rest in second] == [
    ('b', 'top', '1.0'),
    ('three', 'a4+top', '94.0'),
  ]
  words, (button,) = shaded(elements, 'document-1')
  assert [x['text'] for x in words] == ['A', 'b', 'c']
  assert button['data-words'] == '0:a1+top:30.0 1:a1:30.0 2:a1+top:40.0'


def test_what_is_not_read_is_told(elements):
  (unread,) = elements.of('span', 'unread')
  assert unread['text'] == ' d. e' and unread['title']
  assert elements.of('p', 'why')[2]['text'] == 'name z: no words'
  assert elements.of('p', 'why')[3]['text'] == ''


def read(shown, **options):
  explanations = Explanations(pathlib.Path('X.jsonl'), [shown], 1, 3, **options)
  return Reader(explanation_page(explanations))


def test_pieces_of_one_character():
  places = [WordPlace('text', *span) for span in ((0, 1), (2, 4), (3, 4))]
  document = Document('d', {'text': 'a éé b'})
  shown = ExplainedDocument(document, places, [label('x', [0.4, 0.3, 0.3])])
  (text,) = read(shown).of('div', 'text')
  assert text['text'] == 'a éé b'


def test_even_attention_is_pale():
  document = Document('d', {'text': 'a b c d ' * 25})
  spans = read(explained(document, [label('x', [0.01] * 100)], 100)).of('span')
  assert len(spans) == 100
  assert {x['class'].removesuffix(' top') for x in spans} == {'word a1'}


def test_words_that_lower_a_score_have_another_tint():
  # Linear models do not read words of one letter, so "x" is no word here.
  document = Document('d', {'text': 'fish and ham, fish x'})
  words = [WordPlace('text', *x) for x in ((0, 4), (5, 8), (9, 12), (14, 18))]
  weights_T = np.array([1.5, 0, -0.7, 0.5], np.float32)
  why = [WeightedWord('fish', 2.0, 'text', (0, 4))]
  labels = [label('x', weights_T, why=why), label('y', [0, 0, 0, -1])]
  elements = read(ExplainedDocument(document, words, labels), attends=False)
  words, buttons = shaded(elements, 'document-0')
  # The sizes of the weights are 1.5, 0.7 and 0.5 of 2.7, times 4 words.
  assert [(x['text'], x['class'], x['title']) for x in words] == [
    ('fish', 'word a2 top', '+1.500'),
    ('ham', 'word b1', '-0.700'),
    ('fish', 'word a1', '+0.500'),
  ]
  assert buttons[0]['data-words'] == '0:a2+top:+1.500 1:b1:-0.700 2:a1:+0.500'
  assert buttons[1]['data-words'] == '2:b3:-1.000'
  why = [x['data-why'] for x in buttons]
  assert why == ['name x: fish +2.000', 'name y: no words']
