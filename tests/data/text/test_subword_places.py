"""Where the pieces of words stand in a document."""

from tests.data.text.test_subwords import TOKENIZER
from xjax.data.schema import Document
from xjax.data.text.subwords import document_subwords
from xjax.data.text.words import WordPlace


def test_places_of_pieces():
  zones = {'title': 'The hÖuses 🙂', 'empty': '', 'body': 'a  [MASK]\nbab'}
  document = Document('1', zones)
  places = document_subwords(document, TOKENIZER)
  found = TOKENIZER.encode(document.text())
  assert len(places) == len(found)
  assert places[0] == ('title', 0, 0) and places[-1] == ('body', 13, 13)
  texts = [document.zones[p.zone][p.start : p.end] for p in places[1:-1]]
  assert texts == ['The', 'hÖuse', 's', '🙂', 'a', '[MASK]', 'b', 'a', 'b']
  assert places[4] == WordPlace('title', 11, 12)
  assert places[5] == WordPlace('body', 0, 1)
  short = document_subwords(document, TOKENIZER, 4)
  assert short == [*places[:3], ('title', 9, 9)]
  assert document_subwords(Document('2', {'a': ''}), TOKENIZER) == []


def test_a_piece_over_a_newline_between_zones(roberta):
  document = Document('1', {'title': 'the', 'body': 'a bat'})
  places = document_subwords(document, roberta)
  assert len(places) == len(roberta.encode(document.text()))
  for place in places:
    text = document.zones[place.zone]
    assert 0 <= place.start <= place.end <= len(text)
