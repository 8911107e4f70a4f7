"""Lists in cells are read as programs print them; separators are guessed."""

import itertools
import time

import numpy as np
import pytest

from xjax.data.files.cells import (
  are_flags,
  as_flag,
  divisible,
  guess_separator,
  have_flags,
  parse_list,
  split_cell,
  split_flags,
)

PRINTED = [
  *("['fish' 'law']", "['fish'\n 'law']", "['fish', 'law']", '["fish","law"]'),
  *("('fish', 'law')", "{'fish', 'law'}", "frozenset({'fish', 'law'})"),
  *("array(['fish', 'law'], dtype='<U4')", "[u'fish', u'law']"),
  *("array(['fish', 'law'],\n      dtype=object)", "[b'fish' b'law']"),
  *("Index(['fish', 'law'], dtype='object', name='x')", '[fish, law]'),
  *("[np.str_('fish'), np.str_('law')]", '{fish,law}', '{"fish",law}'),
  *("<StringArray>\n['fish', 'law']\nLength: 2, dtype: string", '<fish><law>'),
  *("['fish', 'law']\nCategories (2, object): ['fish', 'law']", '<fish> <law>'),
]


@pytest.mark.parametrize('text', PRINTED)
def test_a_printed_list_has_its_labels(text):
  assert parse_list(text) == ['fish', 'law']
  assert guess_separator([text, '[]']) == 'list'


@pytest.mark.parametrize(
  ('text', 'values'),
  [
    ('[ 1  2 10]', [1, 2, 10]),
    ('[0. 1.]', [0.0, 1.0]),
    ('[007, 12]', ['007', 12]),
    ("['a', nan, None]", ['a']),
    ("['a' ... 'z']", ['a', Ellipsis, 'z']),
    ("['हिन्दी'\n 'ภาษา ไทย']", ['हिन्दी', 'ภาษา ไทย']),
    (str(np.array(["it's", 'a "b"'])), ["it's", 'a "b"']),
    ("['a\\'b']", ["a'b"]),
    *(
      (empty, []) for empty in ('[]', '()', 'set()', 'array([], dtype=object)')
    ),
    # These are no lists of labels.
    ('Smith (John)', None),
    ('(a, b)', None),
    ('f(x)', None),
    ("{'a': 1}", None),
    ("[__import__('os').getcwd()]", None),
    ('[1', None),
    ('a <b>', None),
  ],
)
def test_what_is_in_brackets_is_read_and_never_run(text, values):
  assert parse_list(text) == values


IN_BRACKETS = "(1)|<1>|array([1])|{1}|('1')|[A1]|[Ж1]".split('|')
# They are lists, but cannot be read.
DAMAGED = [
  *('{"fish": 0, "law": 1}', 'c("a", "b")', 'WrappedArray(a, b)', "['a', 'b'"),
  *('"[\\"a\\"]"', '[‘a’, ‘b’]', '"a", "b"', "'a', 'b']", '[“a”]', 'Set(a)'),
]


@pytest.mark.parametrize('text', DAMAGED)
def test_a_damaged_list_is_not_read(text):
  assert parse_list(text) is None


@pytest.mark.parametrize(
  'text',
  [
    f'[x]{", a=b" * 9_000}(',
    f'[x{" " * 30_000}(]',
    f'({"1:" * 20_000} x',
  ],
)
def test_long_cells_take_no_time(text):
  start = time.monotonic()
  assert guess_separator([text]) == 'none' and parse_list(text) is None
  assert time.monotonic() - start < 2


@pytest.mark.parametrize('mark', [',', '; ', '|', ', '])
def test_a_label_in_quotes_may_have_the_separator(mark):
  """Airtable writes cells so."""
  odd = f'fish{mark}fresh'
  cell = mark.join(['law', f'"{odd}"', '5" pipe'])
  assert split_cell(cell, mark.strip()) == ['law', odd, '5" pipe']
  cell = mark.join(['"big" data', 'law', 'a"'])  # no quotes of CSV
  assert split_cell(cell, mark.strip()) == ['"big" data', 'law', 'a"']


def test_zeros_and_ones_are_told_from_ids():
  assert are_flags([[0, 1, 0], ['0', 'true'], [1.0]])
  assert are_flags([[0, 1], ['1', 'False'], [0.0, 1]])
  assert not are_flags([[0, 1], [0], [1, 0]])
  assert not are_flags([[0, 1], [0, 1]])
  assert not are_flags([[0, 0, 2]]) and not are_flags([])


FLAGS = ['{}{}{}', '[{}, {}, {}]', '{} {} {}', '{};{};{}', '{}/{}/{}']
FLAGS += ['({}, {}, {})', '[{} {} {}]', '[{};{};{}]', '{}，{}，{}', '{}-{}-{}']


@pytest.mark.parametrize(
  ('form', 'no', 'yes'),
  [
    *((form, 0, 1) for form in FLAGS),
    *((form, 0.0, 1.0) for form in FLAGS[1:-1]),
    *((form, 'no', 'yes') for form in FLAGS[1:]),
    *((form, False, True) for form in FLAGS[1:]),
    *((form, -1, 1) for form in FLAGS[1:-1]),
  ],
)
def test_zeros_and_ones_are_read_in_any_form(form, no, yes):
  cells = [form.format(no, yes, no), form.format(yes, yes, no), '']
  assert have_flags(cells)
  flags = [[as_flag(x) for x in split_flags(cell)] for cell in cells]
  assert flags == [[False, True, False], [True, True, False], []]
  assert have_flags([[no, yes, no], [yes, yes, no], None])


@pytest.mark.parametrize(
  'cells',
  [
    *(['0', '1'], ['yes', 'no'], ['True', 'False'], ['-1', '1'], [0, 1], []),
    *(['0', '1', '0;1'], ['10', '11'], ['1', '10', '100'], ['0110', '01', '2']),
    *(['0 1 0', '0 1 2'], ['0 1 0', 'law'], ['2010', '0101'], ['[0 1 ... 0]']),
    [{'a': 0, 'b': 1}, {'a': 1, 'b': 0}],
  ],
)
def test_ids_and_classes_are_no_zeros_and_ones(cells):
  assert not have_flags(cells)


@pytest.mark.parametrize(
  ('cells', 'separator'),
  [
    (['a;b', 'a;c', 'b'], ';'),
    (['x|y', 'y|x|z', 'z'], '|'),
    (['x;#y', 'y;#x;#z', 'z'], ';#'),  # as SharePoint has it
    # Another separator, or a list, of the same labels in other cells.
    *(
      (['a;b', 'b;c', 'c', f'a{x}b'], '') for x in (',', '|', ' / ', ' ', '、')
    ),
    (['a;b', 'b;c', 'c', '[a, b]'], ''),
    *((['a', 'b', 'c', f'a{x}b', f'b{x}c'], '') for x in (' / ', ' ', '/')),
    (['1', '2', '3', '[1 2]'], ''),
    (['a;b', 'b;c', 'c', 'x, y', 'x|z'], ';'),
    (['a;b', 'b;c', 'a, b', 'a, b;c'], ';'),  # beside the separator: a name
    *(([f'a, b{x}a, c', 'a, c', f'c{x}a, b'], x) for x in '\n\t'),
    (['a,\nb', 'b,\nc', 'c'], ','),
    (['a;\nb', 'b;\nc', 'c'], ';'),
    (['data', 'science', 'data science', 'tax law'], 'none'),
    # One label with a separator in it may be frequent.
    (['R&D; ops'] * 3 + ['sales'], 'none'),
    (['x|y'] * 3, 'none'),
    (['grain,oil', 'oil,wheat', 'grain', 'wheat,oil'], ','),
    # The parts of these labels are in no other cell.
    (['Health, Fitness', 'Arts, Music', 'Law', 'Law', 'Arts, Music'], 'none'),
    (['["a", "b"]', '[]'], 'list'),
    (["['a', 'b']"], 'list'),
    (['[a]', 'b'], 'none'),
    (['[API, web]', '[UI]', '[Ops]'], 'none'),
    (["[l'art]", "[d'or]", "{\\'e}cole"], 'none'),
    (['<http://x/1>', '<http://x/2>'], 'list'),
    (['[fish, law]', '[fish]', '[law, tax]', '[tax]'], 'list'),
    *(([x, x.replace('1', '2')], 'none') for x in IN_BRACKETS),
    *(([x, 'law'], 'list') for x in DAMAGED),
    (['one', 'two', ''], 'none'),
    ([], 'none'),
  ],
)
def test_the_separator_is_guessed(cells, separator):
  assert guess_separator(cells) == separator


TAGS = [row for n in (1, 2, 3) for row in itertools.permutations('uiop', n)] * 2
SINGLE = [
  *('http://x.org/a/{}', 'src/mod/f{}.py', '2020-01-01 10:{:02}', '{}.5'),
  *('Model {} Pro', 'US {} B1', '2020-{}-01', 'EC 1.{}.3.1'),
]
IDS = np.random.default_rng(0).integers(5000, size=(1000, 3))


@pytest.mark.parametrize(
  'separator', [',', ' ', ';', ';#', ' | ', ' / ', '\n', '\t', '、']
)
@pytest.mark.parametrize(
  'form', ['{}', 'B00{}X', 'http://yso/{}', 'cs.{}', 'G06F {}/7']
)
def test_rare_codes_are_divided(separator, form):
  """Most of them are in no other cell."""
  if separator == ' ' in form:
    return
  rows = [row[: 1 + i % 3] for i, row in enumerate(IDS)]
  cells = [separator.join(map(form.format, row)) for row in rows]
  guessed = guess_separator(cells)
  assert guessed.strip() == separator.strip()
  for cell, row in zip(cells, rows):
    assert len(cell.split(guessed)) == len(row)


HALVES = [*itertools.product(('Doe', 'Roe'), ('John', 'Jane')), ('Smith',)]
ODD = [' & ', ' > ', ' • ', ' -- ', ' and ', *'#~^+・｜।·\xa0\u3000', '<br>']


@pytest.mark.parametrize('separator', [*'/-+_.:&# ', ' - ', ' > ', '__', '·'])
@pytest.mark.parametrize('form', ['{}', 'B00{}X'])
def test_three_codes_in_each_cell_are_not_clear(separator, form):
  cells = [separator.join(map(form.format, row)) for row in IDS]
  assert guess_separator(cells) == ''
  assert divisible(cells) == cells


@pytest.mark.parametrize(
  ('cells', 'separator'),
  [
    # Tags in any order are fewer than their combinations.
    *(([x.join(row) for row in TAGS], x) for x in (' ', '/', ' / ', ' - ')),
    # If other marks than the usual ones are between them, nobody knows.
    *(([x.join(row) for row in TAGS], '') for x in ODD),
    *(([f'[{x.join(row)}]' for row in TAGS], '') for x in ODD + [';', '] [']),
    # Connecting words are no labels; a hyphen or point is in names.
    *(([x.join(row) for row in TAGS], 'none') for x in (' og ', '-', '.')),
    # As many parts in all cells: one label.
    *(
      ([x.join(row) for row in itertools.permutations('abcd', 2)] * 9, 'none')
      for x in (' ', '/', ' - ')
    ),
    (['2 - 1', '1 - 1', '1 - 2', '0 - 0'] * 9, 'none'),
    (['0 0 1', '1 0 0', '0 1 1'] * 9, ' '),  # zeros and ones for three labels
    *(([form.format(i) for i in range(60)], 'none') for form in SINGLE),
    # The words of names, the levels of a path and the halves of codes have
    # their places.
    ([f'{a} {b}' for a in 'xyz' for b in 'qwertzuiop'] * 3, 'none'),
    ([f'{a}/{b}' for a in 'xyz' for b in 'qwertzuiop'] * 3, 'none'),
    ([f'G{a}F {b}/{c}' for a in '123' for b in '12' for c in '45'] * 9, 'none'),
    # Parts in two places, the later ones never alone: names, or two labels?
    *(([x.join(row) for row in HALVES], '') for x in (', ', '，', '、', '، ')),
    *(([x.join(row) for row in HALVES] + ['Jane'], x[0]) for x in (', ', '、')),
    # Names that are all rare: nobody knows.
    ([f'name {i}, x{chr(97 + i)}' for i in range(26)], ''),
    ([f'name {i} ; x{chr(97 + i)}' for i in range(26)], ';'),
    (['own label', 'other label', 'third', 'fourth'] * 9, 'none'),
  ],
)
def test_words_of_a_name_are_kept_together(cells, separator):
  assert guess_separator(cells) == separator


def test_a_rare_cell_counts_among_many():
  codes = np.random.default_rng(0).integers(5000, size=(30_000, 3))
  cells = [f'{a},{b},{c}' for a, b, c in codes.tolist()]
  assert guess_separator(cells) == ','
  for rare in ('1;2', '3 / 4', '[5, 6]'):
    assert guess_separator([*cells, rare]) == ''
