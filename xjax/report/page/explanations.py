"""Writes an HTML page that shows which words explain predicted labels.

Each label is a button. A click on the button shades the words to which the
label attends, or, for a linear model, the words that raise or lower the score
of the label. In a browser without JavaScript, only the words of each document's
best label are shaded.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from html import escape

import numpy as np

from xjax.data.text.words import split_terms, split_words
from xjax.judge.prediction_lines import (
  ExplainedDocument,
  ExplainedLabel,
  Explanations,
  proposer_shares,
)
from xjax.report.page.page import html_file, page_file, script

_LEVELS = 8
_FEATURES = 6  # features that are shown for a label
_Rgb = tuple[int, int, int]
# The strongest shades of words with weights above 0 (classes a1, a2, ...) and
# below 0 (b1, b2, ...). The contrast ratio with dark text is at least 7.
_DARKEST = {'a': (245, 166, 35), 'b': (126, 178, 236)}
# Text is light on a dark page; its contrast ratio with these shades is 5.
_PAGE, _BRIGHTEST = (21, 24, 28), {'a': (140, 80, 0), 'b': (32, 92, 156)}


def _title(explanations: Explanations) -> str:
  weights = 'Attention of' if explanations.attends else 'Weights of words for'
  return f'{weights} the labels of {explanations.path.name}'


_ATTENTION = """\
Choose a label to shade the words to which the label attends. The palest shade \
is about the attention that a word would have if the label attended to all \
words evenly. Each darker shade is twice as much attention as the shade before \
it. A word without a shade has clearly less. The {words} words with the most \
attention are underlined. The attention of all words that the model reads adds \
up to 100 %."""
_WEIGHTS = """\
Choose a label to shade the words by their weights for the label. The weight \
of a word is how much it adds to the score of the label, before the score \
becomes a probability; in a label tree, to the sum of the scores on the path \
of the label. Orange words raise the score, and blue words lower it. The \
palest shade is about the weight that a word would have if all words had equal \
weights. Each darker shade is twice as much as the shade before it. At most \
{words} words are listed: those that raise the score most. They are underlined \
where they occur first. If a word occurs several times, the list has the sum \
of its weights."""


_SHARES = """\
Several models propose the labels, and a ranker computes one score. The line \
below the labels first says how much each proposer adds to the score; the sum, \
with the base that all labels have, is the score before it becomes a \
probability. Then come the features with the largest shares. The words are \
those of the proposer that adds most and reads words, with their weights in \
the score of this proposer."""


def explanation_page(explanations: Explanations) -> str:
  """Returns the page as HTML that needs no other file."""
  title = _title(explanations)
  shown, n_documents = explanations.documents, explanations.n_documents
  count = f'{n_documents:,} documents'
  if len(shown) < n_documents:
    count = f'The first {len(shown):,} of {count}'
  about = _ATTENTION if explanations.attends else _WEIGHTS
  about = about.format(words=explanations.words)
  if any(label.features for document in shown for label in document.labels):
    about += f' {_SHARES}'
  parts = [
    f'<h1>{escape(title)}</h1>',
    f'<p>{count}. {about}</p>',
    _contents(shown),
    *(article(i, d, explanations.attends) for i, d in enumerate(shown)),
    script('explanations.js'),
  ]
  return html_file(title, '\n'.join(parts), page_style())


def page_style() -> str:
  """Returns the CSS of buttons, texts and shades."""
  return page_file('explanations.css') + ''.join(_shades())


def _shades() -> Iterator[str]:
  yield from _blends((255, 255, 255), _DARKEST)
  yield '@media screen and (prefers-color-scheme: dark) {\n'
  yield from _blends(_PAGE, _BRIGHTEST)
  yield '}\n'


def _blends(page: _Rgb, strongest: Mapping[str, _Rgb]) -> Iterator[str]:
  for letter, full in strongest.items():
    for level in range(1, _LEVELS + 1):
      rgb = ', '.join(
        str(round(a + (b - a) * level / _LEVELS)) for a, b in zip(page, full)
      )
      yield f'.text .{letter}{level} {{ background: rgb({rgb}); }}\n'


def _contents(shown: Sequence[ExplainedDocument]) -> str:
  links = ''.join(
    f'<li><a href="#document-{i}">{escape(explained.document.id)}</a></li>'
    for i, explained in enumerate(shown)
  )
  return f'<details><summary>Documents</summary>\n<ol>{links}</ol>\n</details>'


def article(number: int, explained: ExplainedDocument, attends: bool) -> str:
  """Returns the HTML of a document: a button per label, and shaded text."""
  # Two subwords may be parts of one character. The first of them counts.
  numbers = {
    (zone, tuple(span)): at
    for at, (zone, *span) in reversed(list(enumerate(explained.words)))
  }
  shades = [_shade(label, numbers, attends) for label in explained.labels]
  # To keep the page small, a word becomes an HTML element only if a label of
  # the document shades or underlines the word.
  order = sorted({at for shade in shades for at in shade})
  places = {at: place for place, at in enumerate(order)}
  buttons = [
    _button(label, shade, places, attends, pressed=not i)
    for i, (label, shade) in enumerate(
      zip(explained.labels, shades, strict=True)
    )
  ]
  why = _why(explained.labels[0], attends) if buttons else ''
  texts = _texts(explained, order, shades[0] if shades else {}, attends)
  name, unit = escape(explained.document.id), _unit(attends)
  return (
    f'<article id="document-{number}" data-unit="{unit}">\n<h2>{name}</h2>\n'
    f'<div class="labels" role="group" aria-label="Labels of {name}">\n'
    + '\n'.join(buttons)
    + f'\n</div>\n<p class="why" aria-live="polite">{escape(why)}</p>\n'
    + '\n'.join(texts)
    + '\n</article>'
  )


def _shade(
  label: ExplainedLabel, numbers: Mapping[tuple, int], attends: bool
) -> dict[int, tuple[str, str]]:
  """Returns number of a word -> (CSS classes, weight as text) for shading.

  Words that are neither shaded nor underlined are left out. `numbers` has the
  number of the word at (zone, (start, end)).

  The shade depends on the share of a word times the number of words. If a label
  attends to all words evenly, this product is 1 for each of them, and all of
  them get the palest shade. The share of a contribution is its part in the sum
  of all contributions without their signs.
  """
  weights_T = label.weights_T.astype(np.float64)
  sizes_T = np.abs(weights_T)
  if not sizes_T.max(initial=0):
    return {}
  times_T = len(sizes_T) * sizes_T / (1 if attends else sizes_T.sum())
  # Times 1, 2, 4, ... are the levels 1, 2, 3, ...; rounding begins a level
  # at the middle between two of them.
  levels_T = np.floor(np.log2(np.maximum(times_T, 1e-9)) + 1.5)
  levels_T = np.clip(levels_T, 0, _LEVELS).astype(int)
  top = {numbers[word.zone, word.at] for word in label.why}
  return {
    at: (
      '+'.join(
        [f'{"b" if weights_T[at] < 0 else "a"}{levels_T[at]}']
        * bool(levels_T[at])
        + ['top'] * (at in top)
      ),
      _amount(weights_T[at], attends),
    )
    for at in sorted(top | set(np.flatnonzero(levels_T).tolist()))
  }


def _amount(weight: float, attends: bool) -> str:
  if not attends:
    return f'{weight:+.3f}'
  return f'{100 * weight:.1f}' if weight >= 0.0005 else '<0.1'


def _unit(attends: bool) -> str:
  return ' %' if attends else ''


def _button(
  label: ExplainedLabel,
  shade: Mapping[int, tuple[str, str]],
  places: Mapping[int, int],
  attends: bool,
  pressed: bool,
) -> str:
  data = ' '.join(
    f'{places[at]}:{names}:{amount}' for at, (names, amount) in shade.items()
  )
  gold = ', gold' if label.is_gold else ''
  return (
    f'<button type="button" aria-pressed="{str(pressed).lower()}" '
    f'title="{escape(label.id)}" '
    f'data-why="{escape(_why(label, attends))}" '
    f'data-words="{escape(data)}">{escape(label.name or label.id)} '
    f'{label.score:.2f}{gold}</button>'
  )


def _why(label: ExplainedLabel, attends: bool) -> str:
  """Returns a text that lists the words that explain a label best."""
  unit = _unit(attends)
  items = (f'{w.word} {_amount(w.weight, attends)}{unit}' for w in label.why)
  words = ', '.join(items) or 'no words'
  if not label.features:
    return f'{label.name or label.id}: {words}'
  shares = _amounts(proposer_shares(label.features).items())
  weights = [(part.name, part.weight) for part in label.features]
  features = _amounts(weights[:_FEATURES])
  return (
    f'{label.name or label.id}: {shares}. Features: {features}. Words: {words}'
  )


def _amounts(weights: Iterable[tuple[str, float]]) -> str:
  return ', '.join(f'{name} {weight:+.2f}' for name, weight in weights)


def _texts(
  explained: ExplainedDocument,
  order: Sequence[int],
  shade: Mapping[int, tuple[str, str]],
  attends: bool,
) -> Iterator[str]:
  zones = {
    name: text for name, text in explained.document.zones.items() if text
  }
  last = explained.words[-1] if explained.words else None
  read = last is not None
  for zone, text in zones.items():
    if len(zones) > 1:
      yield f'<h3>{escape(zone)}</h3>'
    end = 0 if not read else len(text)
    if last is not None and zone == last.zone:
      end, read = last.end, False
    body = _words(explained, order, shade, zone, text[:end], attends)
    rest = _rest(text[end:], attends)
    yield f'<div class="text" dir="auto">{body}{rest}</div>'


def _words(
  explained: ExplainedDocument,
  order: Sequence[int],
  shade: Mapping[int, tuple[str, str]],
  zone: str,
  text: str,
  attends: bool,
) -> str:
  parts, end = [], 0
  for at in order:
    word = explained.words[at]
    if word.zone == zone:
      names, amount = shade.get(at, ('', ''))
      shown = escape(amount) + _unit(attends)
      title = f' title="{shown}"' if amount else ''
      classes = ' '.join(['word', *names.split('+')]).strip()
      parts += [
        escape(text[end : word.start]),
        f'<span class="{classes}"{title}>',
        # Two subwords may be parts of one character. This character must not
        # be written twice.
        escape(text[max(end, word.start) : word.end]),
        '</span>',
      ]
      end = max(end, word.end)
  return ''.join(parts) + escape(text[end:])


def _rest(text: str, attends: bool) -> str:
  """Returns the HTML of the text after the last word that the model reads."""
  if not (split_words if attends else split_terms)(text):
    return escape(text)
  title = 'The model does not read this part.'
  return f'<span class="unread" title="{title}">{escape(text)}</span>'
