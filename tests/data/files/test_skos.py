"""SKOS vocabularies as files of labels: languages, faults, no traps."""

import gzip
import sys

import pytest

from tests.fixtures.error_text import error_text
from xjax.core.errors import ConfigError, UserError
from xjax.data.files.faults import Faults
from xjax.data.formats.label_files import read_descriptors
from xjax.data.schema import Label

TURTLE = """\
@prefix skos: <http://www.w3.org/2004/02/skos/core#> .
@prefix owl: <http://www.w3.org/2002/07/owl#> .
@prefix c: <http://x.org/c/> .
<http://x.org/scheme> a skos:ConceptScheme ; skos:prefLabel "Scheme"@en .
c:2 a skos:Concept ; skos:prefLabel "kala"@fi, "Fish"@en-GB, "fish"@en ;
  skos:altLabel "kalat"@fi, "fishes"@en, "Pisces" ; skos:broader c:1 ;
  skos:scopeNote "a note"@en .
c:1 a skos:Concept ; skos:prefLabel "Tiere"@de, "el\\u00e4in"@fi ;
  skos:narrower c:3 ; skos:definition "lives"@en, "el\\u00e4\\u00e4"@fi .
c:3 a skos:Concept ; skos:prefLabel "bird"@en ; owl:deprecated true .
"""
ENGLISH = [
  Label('http://x.org/c/1', 'Tiere', description='lives'),
  Label(
    'http://x.org/c/2',
    'fish',
    ('fishes', 'Pisces'),
    ('http://x.org/c/1',),
    'a note',
  ),
]
XML = """\
<?xml version="1.0" encoding="{}"?>
<!DOCTYPE rdf:RDF [{}]>
<rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#"
  xmlns:skos="http://www.w3.org/2004/02/skos/core#">
<skos:Concept rdf:about="#b"><skos:prefLabel xml:lang="de">M&#252;ll{}\
</skos:prefLabel></skos:Concept>
</rdf:RDF>
"""


def read(path, language=''):
  faults = Faults()
  labels = read_descriptors(path, faults, language)
  faults.raise_or_log()
  return labels


@pytest.fixture
def vocabulary(tmp_path):
  """A function that writes a vocabulary, and returns its path."""

  def write(text, name='labels.ttl'):
    data = text if isinstance(text, bytes) else text.encode()
    (tmp_path / name).write_bytes(data)
    return tmp_path / name

  return write


def test_concepts_are_labels(vocabulary, caplog):
  caplog.set_level('INFO', 'absl')
  labels = read(vocabulary(TURTLE))
  assert list(labels.values()) == ENGLISH
  assert 'names in en are read, of names in de, en, en-gb, fi' in caplog.text
  packed = vocabulary(gzip.compress(TURTLE.encode()), 'v.ttl.gz')
  assert read(packed) == labels
  assert [x.name for x in read(packed, 'fi').values()] == [
    'eläin',
    'kala',
  ]
  with pytest.raises(ConfigError, match="='sv': .* names in de, en, en-gb, fi"):
    read(packed, 'sv')


OTHER_NAMES = """\
@prefix rdfs: <http://www.w3.org/2000/01/rdf-schema#> .
@prefix xl: <http://www.w3.org/2008/05/skos-xl#> .
c:4 a skos:Concept ; rdfs:label "bread"@en, "\u30d1\u30f3"@ja .
c:5 a skos:Concept ; xl:prefLabel c:l5 ; xl:altLabel [ xl:literalForm "B" ] .
c:l5 a xl:Label ; xl:literalForm "butter"@en, "\u30d0\u30bf\u30fc"@ja .
c:6 a skos:Concept ; rdfs:label "not this"@en ; skos:prefLabel "milk"@en .
"""


def test_concepts_without_a_usual_name(vocabulary):
  path = vocabulary(TURTLE + OTHER_NAMES)
  names = {id_[-1]: label.name for id_, label in read(path).items()}
  assert names == {
    **dict(zip('12456', ['Tiere', 'fish', 'bread', 'butter'])),
    '6': 'milk',
  }
  assert read(path)['http://x.org/c/5'].alt == ('B',)
  names = {id_[-1]: label.name for id_, label in read(path, 'ja').items()}
  assert (names['4'], names['5']) == ('パン', 'バター')


def test_classes_are_labels_where_there_is_no_concept(vocabulary):
  text = (
    '@prefix rdfs: <http://www.w3.org/2000/01/rdf-schema#> .\n'
    '@prefix owl: <http://www.w3.org/2002/07/owl#> .\n<a> a owl:Class ; '
    'rdfs:label "cat" ; rdfs:subClassOf <b> .\n<b> a owl:Class .\n'
    '<p> a owl:ObjectProperty ; rdfs:label "eats" .\n'
  )
  labels = [Label('a', 'cat', parents=('b',)), Label('b', 'b')]
  assert list(read(vocabulary(text, 'labels.owl')).values()) == labels
  with pytest.raises(ConfigError, match="='en': .* one language, which is not"):
    read(vocabulary(text), 'en')


def test_the_most_frequent_language_is_read_without_english(vocabulary):
  path = vocabulary(TURTLE.replace('@en-GB', '@sv').replace('@en', '@fi'))
  assert [x.name for x in read(path).values()] == ['eläin', 'fish']


def test_a_deprecated_concept_is_left_out(vocabulary):
  text = TURTLE.replace('c:2 a', 'c:2 skos:broader c:3 ; a')
  assert list(read(vocabulary(text)).values()) == ENGLISH


@pytest.mark.parametrize('encoding', ['utf-8', 'latin-1', 'utf-16'])
def test_xml_may_have_entities_of_namespaces(vocabulary, tmp_path, encoding):
  text = XML.format(encoding, '<!ENTITY o "ordnung">', '&o;')
  path = vocabulary(text.encode(encoding), 'labels.rdf')
  assert list(read(path).values()) == [Label('#b', 'Müllordnung')]
  moved = tmp_path / 'moved'
  moved.mkdir()
  assert read(path.rename(moved / 'labels.owl')).keys() == {'#b'}


LOL = '<!ENTITY a "lol"><!ENTITY b "&a;&a;&a;">'
ENTITY = 'is not a short text'


@pytest.mark.parametrize(
  ('name', 'text', 'message'),
  [
    ('v.ttl', '<a> <b> "c" .\nx:a x:b x:c .', ':2: not Turtle that can be'),
    ('v.ttl', b'<a> <b>\n"\xe4" .', ':2: not Turtle that can be read: not UTF'),
    ('v.nt', '<a> <b> "c', ': not Turtle that can be read: Quote expec'),
    ('v.ttl', '[' * 100_000, ': not Turtle that can be read'),
    ('v.ttl', '<a> <b> "c" .', ': no label in it'),
    ('v.rdf', '<?xml version="1.0"?>\n<a>\n</b>', ':3: not RDF/XML that can'),
    ('v.rdf', XML.format('utf-8', LOL, '&b;'), f":2: not RDF/XML that can be "
     f"read: the entity 'b' {ENTITY}"),
    ('v.xml', XML.format('utf-8', '<!ENTITY b SYSTEM "file:///etc/hosts">', ''),
     f":2: not RDF/XML that can be read: the entity 'b' {ENTITY}"),
    ('v.rdf', XML.format('utf-8', f'<!ENTITY b "{"x" * 999}">', '&b;' * 9),
     f":2: not RDF/XML that can be read: the entity 'b' {ENTITY}"),
    ('v.ttl', TURTLE + 'c:1 skos:broader c:2 .',
     ": label 'http://x.org/c/2' is its own ancestor"),
  ],
)  # fmt: skip
def test_faults(vocabulary, name, text, message):
  path = vocabulary(text, name)
  assert error_text(read, path).startswith(f'{path}{message}')


def test_a_broader_concept_of_another_file_is_left_out(vocabulary, caplog):
  caplog.set_level('INFO', 'absl')
  more = 'c:2 skos:broader c:9, <http://y.org/1> . c:8 skos:narrower c:2 .'
  labels = read(vocabulary(TURTLE + more))
  assert list(labels.values()) == ENGLISH
  assert '3 broader concepts, such as http://x.org/c/8, are l' in caplog.text


def test_names_that_are_not_read_are_warned_of(vocabulary, caplog):
  read(vocabulary(TURTLE.replace('skos:prefLabel', '<http://x.org/name>')))
  assert 'no concept has a skos:prefLabel' in caplog.text


def test_nothing_is_fetched(vocabulary, monkeypatch):
  monkeypatch.setattr('socket.socket.connect', lambda *_: 1 / 0)
  dtd = XML.format('utf-8', '', '').replace('[]', 'SYSTEM "http://x.org/d.dtd"')
  assert read(vocabulary(dtd, 'v.rdf')).keys() == {'#b'}
  imports = '<http://x.org> owl:imports <http://x.org/more.ttl> .'
  assert len(read(vocabulary(TURTLE + imports))) == 2


def test_without_rdflib_the_extra_is_named(vocabulary, monkeypatch):
  monkeypatch.setitem(sys.modules, 'rdflib', None)
  with pytest.raises(UserError, match=r"pip install 'xjax\[skos\]'"):
    read(vocabulary(TURTLE))
