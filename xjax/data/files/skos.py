"""Reads the concepts of SKOS vocabularies: Turtle, N-Triples or RDF/XML."""

import collections
from collections.abc import Iterable, Iterator
import functools
import io
import os
import re
from typing import Any
from xml import sax
from xml.parsers import expat

from absl import logging

from xjax.core.errors import ConfigError, DataError, optional
from xjax.core.texts import plain_name
from xjax.data.files.faults import Fault
from xjax.data.files.json_lines import (
  UTF8_MARK,
  UTF16_MARKS,
  decode_utf8,
  open_text,
)

ENDINGS = 'ttl|nt|n3|rdf|owl|xml|skos'
LANGUAGE = 'en'
# Stands before IRIs that have no scheme, and is removed again, so that ids do
# not depend on the folder of the file.
_BASE = 'http://relative.invalid/'
_XML = re.compile(r'\s*<(\?xml|!|\w+:RDF\b)')
_HEAD = 1000  # bytes that tell XML; an even number, for UTF-16
_SHOWN = 100  # characters of an error of rdflib
_LONGEST_ENTITY = 200  # characters; the entities of namespaces are shorter
_XL = 'http://www.w3.org/2008/05/skos-xl#'
_OTHER = 3  # rank of the texts in another language


class _DocumentBegins(Exception):
  """Ends the reading of an XML file before its first element."""


def read_skos(
  path: str | os.PathLike, language: str = ''
) -> list[dict[str, Any]]:
  """Reads concepts that are not deprecated, as rows of labels.jsonl.

  They are sorted by IRI. Names are those in the `language`, by default in
  English, or else in the language of most names. Nothing is fetched.
  """
  rdflib = optional('rdflib', f'{path}: reading SKOS', 'skos')
  from rdflib.namespace import OWL, SKOS

  def iris(nodes: Iterable) -> list[Any]:
    return sorted({node for node in nodes if isinstance(node, rdflib.URIRef)})

  graph = _parsed(path, rdflib)
  concepts = next(filter(None, map(iris, _as_skos(graph))), [])
  marked = graph.subject_objects(OWL.deprecated)
  gone = {node for node, value in marked if value.lower() in ('true', '1')}
  concepts = [node for node in concepts if node not in gone]
  names = [x for node in concepts for x in graph[node : SKOS.prefLabel]]
  if concepts and not names:
    logging.warning('%s: no concept has a skos:prefLabel: no names', path)
  known, outside = set(concepts), set()
  rank = _language_rank(names, language, path)

  def texts(node: Any, kind: Any, below: int = _OTHER) -> list[str]:
    values = (x for x in graph[node:kind] if isinstance(x, rdflib.Literal))
    ranked = sorted((rank(x), plain_name(x)) for x in values)
    return [text for place, text in ranked if text and place < below]

  def row(node: Any) -> dict[str, Any]:
    above = [*graph[node : SKOS.broader], *graph.subjects(SKOS.narrower, node)]
    outside.update(parent for parent in iris(above) if parent not in known)
    described = texts(node, SKOS.definition) + texts(node, SKOS.scopeNote)
    return {
      'id': node.removeprefix(_BASE),
      'name': (texts(node, SKOS.prefLabel, _OTHER + 1) or [''])[0],
      'alt': texts(node, SKOS.altLabel),
      'parents': [x.removeprefix(_BASE) for x in iris(known & {*above})],
      'description': described[0] if described else '',
    }

  rows = list(map(row, concepts))
  if outside:
    logging.info(
      '%s: %d broader concepts, such as %s, are left out: they are deprecated, '
      'or not in this file',
      *(path, len(outside), min(outside)),
    )
  return rows


def _as_skos(graph: Any) -> Iterator[Iterable]:
  """Yields what may be concepts, the best first; their names become SKOS."""
  from rdflib.namespace import OWL, RDF, RDFS, SKOS, Namespace

  extended = Namespace(_XL)
  for kind in ('prefLabel', 'altLabel'):  # of nodes, which have the texts
    for node, label in [*graph[: extended[kind]]]:
      for text in [*graph[label : extended.literalForm]]:
        graph.add((node, SKOS[kind], text))
  named = {*graph.subjects(SKOS.prefLabel)}
  for node, name in [*graph[: RDFS.label]]:
    if node not in named:
      graph.add((node, SKOS.prefLabel, name))
  for node, above in [*graph[: RDFS.subClassOf]]:
    graph.add((node, SKOS.broader, above))
  yield graph.subjects(RDF.type, SKOS.Concept)
  yield named
  yield graph.subjects(RDF.type, OWL.Class)
  yield graph.subjects(SKOS.prefLabel)


def _parsed(path: str | os.PathLike, rdflib: Any) -> Any:
  """Returns the graph of a file; a DataError tells the line of a fault."""
  with open_text(path) as file:
    data = file.read().removeprefix(UTF8_MARK)
  encoding = 'utf-16' if data.startswith(UTF16_MARKS) else 'utf-8'
  is_xml = bool(_XML.match(data[:_HEAD].decode(encoding, 'replace')))
  what = 'RDF/XML' if is_xml else 'Turtle'
  try:
    if is_xml:
      _check_entities(data)
    else:
      decode_utf8(data)  # a Fault has the line
    form = 'xml' if is_xml else 'turtle'
    return rdflib.Graph().parse(io.BytesIO(data), _BASE, form)
  except Fault as fault:
    line, why = fault.line, str(fault)
  except sax.SAXParseException as error:
    line, why = error.getLineNumber(), error.getMessage()
  except Exception as error:  # rdflib has all kinds, AssertionError too
    line = getattr(error, 'lines', None)
    line = None if line is None else line + 1  # Turtle counts from 0
    why = getattr(error, '_why', None) or str(error).partition('\n')[0][:_SHOWN]
  where = path if line is None else f'{path}:{line}'
  raise DataError(f'{where}: not {what} that can be read: {why}')


def _check_entities(data: bytes) -> None:
  """Raises a Fault for entities that could grow without end, or are fetched."""
  parser = expat.ParserCreate()

  def declared(name: str, is_parameter: bool, value: str | None, *_) -> None:
    long = not value or '&' in value or len(value) > _LONGEST_ENTITY
    if is_parameter or long:
      message = f'the entity {name!a} is not a short text'
      raise Fault(message, parser.CurrentLineNumber)

  def begun(*_) -> None:
    raise _DocumentBegins

  parser.EntityDeclHandler, parser.StartElementHandler = declared, begun
  try:
    parser.Parse(data, True)
  except (_DocumentBegins, expat.ExpatError):
    return  # the reader tells of errors


def _language_rank(names: list, wanted: str, path: str | os.PathLike) -> Any:
  """Returns how well the language of a text fits: 0 is best, _OTHER not."""
  counts = collections.Counter((x.language or '').lower() for x in names)
  tags = sorted(tag for tag in counts if tag)
  fits = functools.partial(speaks, wanted.lower() or LANGUAGE)
  if wanted and not any(map(fits, tags)):
    raise no_names(wanted, path, tags)
  if tags and not any(map(fits, tags)):
    chosen = max(tags, key=lambda tag: counts[tag])
    fits = functools.partial(speaks, chosen)
  chosen = fits.args[0]
  if any(not fits(tag) for tag in tags):
    logging.info(
      '%s: names in %s are read, of names in %s (data.label_language)',
      *(path, chosen, ', '.join(tags)),
    )

  def rank(text: Any) -> int:
    tag = (text.language or '').lower()
    return 0 if tag == chosen else 1 if fits(tag) else _OTHER if tag else 2

  return rank


def no_names(
  wanted: str, path: str | os.PathLike, tags: Iterable[str], more: str = ''
) -> ConfigError:
  """Returns the error that labels have no names in a language."""
  has = ', '.join(sorted(filter(None, tags)))
  has = has or 'one language, which is not named'
  return ConfigError(
    f'data.label_language={wanted!r}: {path} has no such names; it has '
    f'names in {has}{more}'
  )


def speaks(language: str, tag: str) -> bool:
  """Returns whether a tag such as en-gb is of a language, such as en."""
  return tag == language or tag.startswith(f'{language}-')
