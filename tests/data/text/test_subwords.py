"""Subword tokenizers: read, made, judged; ids and places of pieces."""

from concurrent import futures
import json
import unicodedata

import numpy as np
import pytest

from tests.fixtures.error_text import error_text
from xjax.data.schema import Document
from xjax.data.text.subwords import Subwords, document_subwords
from xjax.data.text.token_cache import encode
from xjax.data.text.tokenizer_json import word_pieces
from xjax.data.text.words import WordPlace

PIECES = (
  '[PAD] [UNK] [CLS] [SEP] [MASK] a b ##a ##b the house ##s . é e'.split()
)
IDS = {piece: i for i, piece in enumerate(PIECES)}
CLS, SEP = IDS['[CLS]'], IDS['[SEP]']
TOKENIZER = Subwords(word_pieces(IDS), 'here')


def settings(**changes) -> dict:
  return {**word_pieces(IDS), **changes}


def ids(text: str, max_tokens: int | None = None) -> list[int]:
  return TOKENIZER.encode(text, max_tokens).tolist()


def numbers(pieces: str) -> list[int]:
  return [IDS[piece] for piece in pieces.split()]


def test_ids_of_a_text():
  assert ids('The houses, bab.') == numbers(
    '[CLS] the house ##s [UNK] b ##a ##b . [SEP]'
  )
  assert TOKENIZER.encode('a').dtype == np.int32
  assert (TOKENIZER.before, TOKENIZER.after) == ((CLS,), (SEP,))
  assert TOKENIZER.n_special == 2
  assert len(TOKENIZER) == len(PIECES) and TOKENIZER.pad_id == 0


def test_the_first_pieces_are_kept_and_special_tokens_stay():
  whole = ids('the houses. ' * 9)
  for n in range(2, len(whole) + 3):
    assert ids('the houses. ' * 9, n) == [*whole[:-1][: n - 1], SEP]


def test_halves_of_surrogates_are_no_characters():
  assert ids('a \ud83d b') == numbers('[CLS] a [UNK] b [SEP]')


def test_many_texts_are_as_each():
  texts = ['', 'the', 'a b ' * 300, 'x' * 400, 'houses'] * 20
  many = TOKENIZER.encode_all(texts, 9)
  for text, found in zip(texts, many, strict=True):
    assert found.tolist() == ids(text, 9)
  with futures.ThreadPoolExecutor(4) as pool:
    for again in pool.map(lambda _: TOKENIZER.encode_all(texts, 9), range(8)):
      assert list(map(list, again)) == list(map(list, many))


def test_saved_and_loaded(tmp_path):
  TOKENIZER.save(tmp_path / 'tokenizer.json')
  again = Subwords.load(tmp_path / 'tokenizer.json')
  assert again.digest == TOKENIZER.digest and again.text == TOKENIZER.text
  again.save(tmp_path / 'again.json')
  assert Subwords.load(tmp_path / 'again.json').text == TOKENIZER.text


TRUNCATED = {'max_length': 3, 'strategy': 'LongestFirst', 'stride': 0}


def test_the_digest_is_of_all_that_decides_ids():
  turned = dict(reversed(settings().items())) | {'padding': None}
  assert Subwords(turned, 'there').digest == TOKENIZER.digest
  short = settings(truncation={**TRUNCATED, 'direction': 'Right'})
  assert Subwords(short, '').digest == TOKENIZER.digest
  cased = word_pieces(IDS, lowercase=False)
  swapped = word_pieces({**IDS, 'a': IDS['b'], 'b': IDS['a']})
  digests = {Subwords(s, '').digest for s in (settings(), cased, swapped)}
  assert len(digests) == 3


def test_settings_of_the_file_that_would_disturb_are_overridden(roberta):
  made = json.loads(roberta.text)
  made['model']['dropout'] = 0.9
  made['truncation'] = {**TRUNCATED, 'direction': 'Left'}
  made['padding']['strategy'] = {'Fixed': 128}
  noisy = Subwords(made, '')
  text = 'the cast the toast ' * 9
  for _ in range(5):
    assert noisy.encode(text).tolist() == roberta.encode(text).tolist()
  assert noisy.digest == roberta.digest


def test_a_tokenizer_made_of_texts():
  texts = ['The house, the mouse', 'the mouse ate 中 É']
  made = Subwords.fit(texts, max_words=2)
  assert made.text == Subwords.fit(texts, max_words=2).text
  pieces = json.loads(made.text)['model']['vocab']
  special = '[PAD] [UNK] [CLS] [SEP] [MASK]'.split()
  assert [pieces[piece] for piece in special] == list(range(5))
  letters = sorted(set('thehousemouseate,中'))
  within = [f'##{c}' for c in letters]
  assert pieces.keys() == {*special, *letters, *within, 'the', 'mouse'}
  for text, wanted in {
    'THE mouse': ['the', 'mouse'],
    # Not only what it was made of: no word is unknown whose letters it knows.
    'seat': ['s', '##e', '##a', '##t'],
  }.items():
    found = made.encode(text).tolist()
    assert found == [2, *(pieces[piece] for piece in wanted), 3]
  assert len(Subwords.fit([])) == 5


def model(**changes):
  return settings(model={**settings()['model'], **changes})


def processor(old, new):
  text = json.dumps(settings()['post_processor']).replace(old, new)
  return settings(post_processor=json.loads(text))


FAULTY = {
  'no JSON': '{',
  'kind': settings(model={'type': 'Magic'}),
  'pieces': model(vocab=[1, 2]),
  'ids': model(vocab={'a': -1}),
  'large ids': model(vocab={'a': 2**40}),
  'empty': model(vocab={}) | {'added_tokens': []},
  'no unknown': model(unk_token='zzz'),
  'no special': settings(post_processor=None),
  'one side': processor(
    '{"SpecialToken": {"id": "[SEP]", "type_id": 0}}',
    '{"Sequence": {"id": "A", "type_id": 0}}',
  ),
  'special beyond': processor('[3]', '[3000]'),
  'truncation of an odd type': settings(normalizer=17),
}


@pytest.mark.parametrize('name', FAULTY)
def test_faulty_files(tmp_path, name):
  content = FAULTY[name]
  path = tmp_path / 'tokenizer.json'
  if isinstance(content, dict):
    content = json.dumps(content)
  if isinstance(content, str):
    content = content.encode()
  path.write_bytes(content)
  for read, place in ((Subwords.load, path), (Subwords.of_folder, tmp_path)):
    message = error_text(read, place)
    assert message.startswith(f'{path}: ') and 'again' in message


def test_absent_files(tmp_path):
  path = tmp_path / 'tokenizer.json'
  assert 'json: there is no such file' in error_text(Subwords.load, path)


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


def test_texts_in_other_forms_have_the_same_pieces():
  cased = Subwords(word_pieces(IDS, strip_accents=False), 'here')
  forms = [
    Document('1', {'t': unicodedata.normalize(form, 'é aéb'), 'b': 'é b'})
    for form in ('NFC', 'NFD')
  ]
  one, other = (encode([x], cased, 99).values.tolist() for x in forms)
  assert one == other == numbers('[CLS] é [UNK] é b [SEP]')
  by_zone = [encode([x], cased, 99, True).values.tolist() for x in forms]
  assert by_zone[0] == by_zone[1]
  for document in forms:
    places = document_subwords(document, cased)[1:-1]
    texts = [document.zones[p.zone][p.start : p.end] for p in places]
    shown = [unicodedata.normalize('NFC', text) for text in texts]
    assert shown == ['é', 'aéb', 'é', 'b']
