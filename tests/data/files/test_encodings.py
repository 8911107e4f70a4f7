"""The encoding of a text is told by its bytes, whatever its alphabet."""

import gzip
import io
import struct
import time
import tracemalloc
import unicodedata

import pytest

from xjax.data.files.encodings import Encoding, encoding_of
from xjax.data.files.faults import Fault

TEXTS = {
  'fr': 'La décision relative à la pêche côtière a été adoptée, élèves',
  'de': 'Größe der Bäume, für die Prüfung müssen Schüler Straßen schreiben',
  'es': 'El niño pequeño comió una manzana en la montaña según la señora',
  'mixed': 'Straße façade niño über garçon mañana größer élève Übung señor',
  'pl': 'Wszyscy ludzie rodzą się wolni i równi pod względem źdźbło żółć',
  'cs': 'Všichni lidé rodí se svobodní, žluťoučký kůň úpěl ďábelské ódy',
  'hu': 'Minden emberi lény szabadon születik, őrült tűz, erdő, gyűlés, nő',
  'tr': 'Bütün insanlar hür, haysiyet ve haklar bakımından eşit doğarlar',
  'lt': 'Visi žmonės gimsta laisvi ir lygūs savo orumu, sąžinė, šviesą',
  'ru': 'Все люди рождаются свободными и равными в своем достоинстве',
  'RU': 'ВСЕ ЛЮДИ РОЖДАЮТСЯ СВОБОДНЫМИ И РАВНЫМИ В СВОЕМ ДОСТОИНСТВЕ',
  'EL': 'ΟΛΟΙ ΟΙ ΑΝΘΡΩΠΟΙ ΓΕΝΝΙΟΥΝΤΑΙ ΕΛΕΥΘΕΡΟΙ',
  'uk': 'Всі люди народжуються вільними і рівними у своїй гідності',
  'el': 'Όλοι οι άνθρωποι γεννιούνται ελεύθεροι και ίσοι στην αξιοπρέπεια',
  'he': 'כל בני האדם נולדו בני חורין ושווים בערכם ובזכויותיהם',
  'ar': 'يولد جميع الناس أحرارا متساوين في الكرامة والحقوق',
  'th': 'มนุษย์ทั้งหลายเกิดมามีอิสระและเสมอภาคกันในเกียรติศักดิ์',
  'zh': '人人生而自由，在尊严和权利上一律平等。他们赋有理性',
  'tw': '人人生而自由，在尊嚴和權利上一律平等。他們賦有理性',
  'ja': 'すべての人間は、生まれながらにして自由であり、尊厳と権利',
  'ko': '모든 인간은 태어날 때부터 자유로우며 그 존엄과 권리에 있어 동등하다',
}
ENCODINGS = """fr cp1252 fr latin-1 fr mac_roman de cp1252 de cp850 es cp1252
  mixed cp1252 pl cp1250 pl iso8859-2 cs cp1250 cs iso8859-2 hu cp1250 hu
  iso8859-2 tr cp1254 tr iso8859-9 lt cp1257 ru cp1251 ru koi8-r ru cp866 ru
  iso8859-5 RU cp1251 RU koi8-r uk cp1251 uk koi8-u el cp1253 el iso8859-7 EL
  cp1253 he cp1255 ar cp1256 th cp874 zh gbk zh gb18030 tw big5 ja shift_jis ja
  euc_jp ko euc_kr ko cp949""".split()


@pytest.mark.parametrize('rows', [1, 3000])
@pytest.mark.parametrize(
  ('language', 'encoding'), [*zip(ENCODINGS[::2], ENCODINGS[1::2], strict=True)]
)
def test_texts_that_are_not_utf8(language, encoding, rows):
  lines = [f'{TEXTS[language]},{number}\n' for number in range(rows)]
  data = ('text,labels\n' + ''.join(lines)).encode(encoding)
  file = io.BytesIO(data)
  found = encoding_of(file)
  assert data.decode(found.name) == data.decode(encoding)
  assert found.guessed and file.tell() == 0
  # The words of these languages do not tell which of them there are.
  assert not found.doubt or language == 'mixed'


@pytest.mark.parametrize(
  ('data', 'encoding'),
  [
    (b'', 'utf-8-sig'),
    (b'plain', 'utf-8-sig'),
    ('é'.encode(), 'utf-8-sig'),
    ('é'.encode('latin-1'), 'cp1252'),
    ('“quoted”'.encode('cp1252'), 'cp1252'),
    (b'\x81 \xe9l\xe8ve \xe0 l\xe9cole de la p\xeache', 'latin-1'),
    ('é'.encode('utf-16'), 'utf-16'),
    ('é\n'.encode('utf-32'), 'utf-32'),
    ('text,é\n'.encode('utf-16-le'), 'utf-16-le'),
    ('文本,标签\n一上一上一上一,上\n'.encode('utf-16-be'), 'utf-16-be'),
    ('текст\n'.encode('utf-16-le') * 9, 'utf-16-le'),
    ('text,é\n'.encode('utf-32-be'), 'utf-32-be'),
    # "É" and a space that keeps a line together are valid UTF-8 by accident.
    ('une É\xa0: été\n'.encode('cp1252'), 'cp1252'),
    # The only letter that is not ASCII is far from the start.
    # Signs, without any word that has them.
    (
      b'end.\xa0 Next \x93so\x94 \x80 5, \x95\xa0 it\x92s\n' * 9,
      'cp1252',
    ),
    (b'a' * (1 << 20) + b'\xe9', 'cp1252'),
    # A letter of two bytes lies across two pieces.
    (b'a' * ((1 << 20) - 1) + 'é'.encode(), 'utf-8-sig'),
    (b'a' * ((1 << 20) - 1) + TEXTS['ja'].encode('cp932'), 'cp932'),
  ],
)
def test_encodings(data, encoding):
  file = io.BytesIO(data)
  assert encoding_of(file).name == encoding and file.tell() == 0
  data.decode(encoding)


FEW = """fr cp1252 Montréal,Orléans,théâtre fr mac_roman école,hôpital,forêt
  de cp850 Köln,München,Straße es cp1252 España,niño,canción
  pl cp1250 Łódź,święto,książka pl cp852 Łódź,święto,książka
  cs iso8859-2 člověk,který,můžeš,věci,žádný hu cp1250 erdő,gyűlés,között
  tr cp1254 doğum,kış,değişik lt cp1257 žmonės,švietimas,šiaurė,mėsa,žuvų
  ru cp1251 рыба,торговля,право ru koi8-r рыба,торговля,право
  ru cp866 рыба,торговля,право ru mac_cyrillic рыба,торговля,право
  uk cp1125 їжа,мистецтво,освіта
  el cp1253 ψάρι,εμπόριο,υγεία el cp737 ψάρι,εμπόριο,υγεία
  he cp1255 חינוך,בריאות,מסחר he cp862 חינוך,בריאות,מסחר
  ar cp1256 تجارة,قانون,مدينة ar iso8859-6 تجارة,قانون,مدينة
  th cp874 การศึกษา,สุขภาพ,กฎหมาย
  zh gbk 渔业,贸易,法律 tw big5 漁業,貿易,法律 ja cp932 魚介類,貿易の,法律と
  ja euc_jp 魚介類,貿易の,スポーツ ko euc_kr 물고기,무역,법률""".split()


@pytest.mark.parametrize(
  ('encoding', 'words'), [*zip(FEW[1::3], FEW[2::3], strict=True)]
)
def test_a_few_words_among_english_ones(encoding, words):
  rows = ['the council adopted a rule on fishing,fish\n'] * 40_000
  words = [unicodedata.normalize('NFC', word) for word in words.split(',')]
  for at, word in enumerate(words):
    rows[30_000 + at] = f'a rule on {word} and trade,{word}\n'
  data = ''.join(['text,labels\n', *rows]).encode(encoding)
  found = encoding_of(io.BytesIO(data))
  assert data.decode(found.name) == data.decode(encoding)
  assert 'on line 3000' in str(found)
  assert any(f'{word!r}' in str(found) for word in words)


@pytest.mark.parametrize(
  ('encoding', 'text'),
  [
    ('hz', '教育 and 文化'),
    ('iso2022_jp', '教育 and 文化'),
    ('iso2022_kr', '교육 and 문화'),
    ('utf-7', 'déjà vu, crème brûlée'),
  ],
)
def test_encodings_in_ascii_bytes(encoding, text):
  data = f'text\n{text}\n'.encode(encoding)
  found = encoding_of(io.BytesIO(data))
  assert data.decode(found.name) == f'text\n{text}\n' and found.guessed
  assert encoding_of(io.BytesIO(b'a~{b} c+de-f\n')).name == 'utf-8-sig'


@pytest.mark.parametrize(
  ('word', 'encoding', 'names'),
  [
    ('château', 'cp1252', ['cp1252', 'cp1257']),
    ('yağmur', 'cp1254', ['cp1252', 'cp1254']),
    ('\x80\x9f\x85\x9d', 'latin-1', ['']),
  ],
)
def test_a_coin_toss_is_told_with_its_readings(word, encoding, names):
  found = encoding_of(io.BytesIO(f'text\nof {word}\n'.encode(encoding)))
  assert found.doubt and all(f'{name}: ' in str(found) for name in names)


@pytest.mark.parametrize(
  ('text', 'encoding'),
  [('è', 'cp1252'), ('señor', 'cp1252'), ('čas', 'cp1250')],
)
def test_a_guess_from_a_few_letters_is_not_sure(text, encoding):
  assert encoding_of(io.BytesIO(text.encode(encoding))).doubt


@pytest.mark.parametrize(
  'text',
  [
    'été',
    'Größe',
    'text,labels\nLe chat a été là,a\nUn élève très âgé à côté,b\n',
    'text,labels\nÀ LA PÊCHE CÔTIÈRE,a\nÉLÈVES,b\n',
    # Marks of a text without letters that are not ASCII.
    'It’s a “dog’s life” – a price of 5 € …',
    'Acme™ board® ©2020',
    'heat of 5°, ±3, 20µm',
    'it’s a café',
    'Erdös–Rényi',
  ],
)
def test_short_western_texts(text):
  assert encoding_of(io.BytesIO(text.encode('cp1252'))).name == 'cp1252'


@pytest.mark.parametrize(
  ('rows', 'line', 'other'),
  [
    (['é', 'è', b'\xe9t\xe9'], 3, 1),
    ([b'\xe9t\xe9', b'cr\xe8me', b'p\xeache', 'déjà'], 1, 4),
    (['教育，文化', '文化'.encode('gbk')], 2, 1),
    (['x', 'рыба'.encode('cp1251'), 'право'.encode('cp1251'), 'рыба'], 2, 4),
  ],
)
def test_lines_of_two_encodings(rows, line, other):
  rows = [row.encode() if isinstance(row, str) else row for row in rows]
  with pytest.raises(Fault, match=f'not UTF-8, .* on line {other}$') as caught:
    encoding_of(io.BytesIO(b'\n'.join(rows)))
  assert caught.value.line == line


def test_damaged_utf8_is_not_taken_for_another_encoding():
  with pytest.raises(Fault, match='not UTF-8, although') as caught:
    encoding_of(io.BytesIO('é\né\né\n'.encode() + b'\xe9\n'))
  assert caught.value.line == 4
  with pytest.raises(Fault, match='not UTF-8, although'):
    encoding_of(io.BytesIO('é abc'.encode() + b'\xc3'))
  with pytest.raises(Fault, match='not UTF-8, although') as caught:
    encoding_of(io.BytesIO('é\n'.encode() * 99_999 + b'\xe9 \n'))
  assert caught.value.line == 100_000


@pytest.mark.parametrize(
  ('data', 'wanted', 'line', 'what'),
  [
    (b'a\nb\xff\n', 'shift_jis', 2, 'not shift_jis: '),
    ('a\né'.encode('cp1251', 'replace') + b'\xe9', 'ascii', 2, 'not ascii: '),
    (b'a\nb\n', 'utf-16', 1, 'not utf-16: '),
    # One damaged byte in a long text, which is guessed right.
    (TEXTS['ru'].encode('cp1251') * 9 + b'\n\x98', '', 2, 'not cp1251: '),
    (b'a\nb\0c\n', '', 2, 'a NUL byte'),
    (b'a\nb\0c\n', 'cp1252', 2, 'a NUL byte'),
    (struct.pack('>9d', *range(9)) + b'\n', '', 1, 'a NUL byte'),
  ],
)
def test_a_byte_that_does_not_fit(data, wanted, line, what):
  with pytest.raises(Fault, match=what) as caught:
    encoding_of(io.BytesIO(data), wanted)
  assert caught.value.line == line


def test_a_wanted_encoding_is_no_guess():
  data = TEXTS['pl'].encode('cp1250')
  assert encoding_of(io.BytesIO(data), 'cp1252') == Encoding('cp1252')
  assert encoding_of(io.BytesIO(data), 'cp1251').name == 'cp1251'
  data = TEXTS['ja'].encode('iso2022_jp')  # bytes below 128
  assert encoding_of(io.BytesIO(data), 'iso2022_jp').name == 'iso2022_jp'
  data = TEXTS['pl'].encode()
  assert encoding_of(io.BytesIO(data), 'cp1250').name == 'utf-8-sig'


@pytest.mark.parametrize('place', ['after', 'before', 'within'])
def test_a_guess_takes_a_long_word_well(place):
  letters = b'n' * 200_000
  before, after = (letters if place != x else b'' for x in ('after', 'before'))
  started = time.perf_counter()
  found = encoding_of(io.BytesIO(before + 'é '.encode('cp1252') + after))
  assert found.name == 'cp1252' and time.perf_counter() - started < 5


@pytest.mark.parametrize(
  ('unit', 'what'), [(b'\0', 'a NUL byte'), (b'\xef\xf0\xe8', 'not ')]
)
def test_a_line_of_any_length_takes_little_memory(unit, what):
  data = gzip.compress(unit * ((1 << 25) // len(unit)) + b'\x98')
  file = gzip.GzipFile(fileobj=io.BytesIO(data))
  tracemalloc.start()
  try:
    with pytest.raises(Fault, match=what):
      encoding_of(file)
    assert tracemalloc.get_traced_memory()[1] < 1 << 25
  finally:
    tracemalloc.stop()
