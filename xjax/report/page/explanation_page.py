"""Writes an HTML page that shows which words explain predicted labels.

Each label is a button. A click on the button shades the words to which the
label attends, or, for a linear model, the words that raise or lower the score
of the label. Without JavaScript, only the words of each document's best label
are shaded.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
import dataclasses
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
  kind = 'Attention of' if explanations.attends else 'Weights of words for'
  title = f'{kind} the labels of {explanations.path.name}'
  shown, n_documents = explanations.documents, explanations.n_documents
  count = f'{n_documents:,} documents'
  if len(shown) < n_documents:
    count = f'The first {len(shown):,} of {count}'
  about = _ATTENTION if explanations.attends else _WEIGHTS
  about = about.format(words=explanations.words)
  if any(label.features for document in shown for label in document.labels):
    about += f' {_SHARES}'
  links = ''.join(
    f'<li><a href="#document-{i}">{escape(explained.document.id)}</a></li>'
    for i, explained in enumerate(shown)
  )
  parts = [
    f'<h1>{escape(title)}</h1>',
    f'<p>{count}. {about}</p>',
    f'<details><summary>Documents</summary>\n<ol>{links}</ol>\n</details>',
    *(_Article(x, explanations.attends).html(i) for i, x in enumerate(shown)),
    script('explanations.js'),
  ]
  return html_file(title, '\n'.join(parts), page_file('explanations.css'))


# Number of a word -> (CSS classes, weight as text).
_Shades = Mapping[int, tuple[str, str]]


@dataclasses.dataclass(frozen=True)
class _Article:
  """Writes a document: a button per label, and shaded text."""

  explained: ExplainedDocument
  attends: bool

  @property
  def unit(self) -> str:
    return ' %' if self.attends else ''

  def html(self, number: int) -> str:
    labels = self.explained.labels
    # Two subwords may be parts of one character. The first of them counts.
    numbers = {
      (zone, tuple(span)): at
      for at, (zone, *span) in reversed(list(enumerate(self.explained.words)))
    }
    shades = [self.shade(label, numbers) for label in labels]
    # To keep the page small, a word becomes an HTML element only if a label of
    # the document shades or underlines the word.
    order = sorted({at for shade in shades for at in shade})
    places = {at: place for place, at in enumerate(order)}
    buttons = '\n'.join(
      self.button(label, shade, places, pressed=label is labels[0])
      for label, shade in zip(labels, shades, strict=True)
    )
    why = self.why(labels[0]) if labels else ''
    texts = '\n'.join(self.texts(places, shades[0] if shades else {}))
    name = escape(self.explained.document.id)
    return (
      f'<article id="document-{number}" data-unit="{self.unit}">\n'
      f'<h2>{name}</h2>\n'
      f'<div class="labels" role="group" aria-label="Labels of {name}">\n'
      f'{buttons}\n</div>\n<p class="why" aria-live="polite">{escape(why)}</p>'
      f'\n{texts}\n</article>'
    )

  def shade(
    self, label: ExplainedLabel, numbers: Mapping[tuple, int]
  ) -> _Shades:
    """Returns how words are shaded that are shaded or underlined.

    `numbers` has the number of the word at (zone, (start, end)). The shade
    depends on the share of a word times the number of words. The product is 1,
    the palest shade, if a label attends to all words evenly. The share of a
    contribution is its part in the sum of all contributions without their
    signs.
    """
    weights_T = label.weights_T.astype(np.float64)
    sizes_T = np.abs(weights_T)
    if not sizes_T.max(initial=0):
      return {}
    times_T = len(sizes_T) * sizes_T / (1 if self.attends else sizes_T.sum())
    # Times 1, 2, 4, ... are the levels 1, 2, 3, ...; rounding begins a level
    # at the middle between two of them.
    levels_T = np.floor(np.log2(np.maximum(times_T, 1e-9)) + 1.5)
    levels_T = np.clip(levels_T, 0, _LEVELS).astype(int)
    top = {numbers[word.zone, word.at] for word in label.why}
    shades = {}
    for at in sorted(top | set(np.flatnonzero(levels_T).tolist())):
      letter, level = 'b' if weights_T[at] < 0 else 'a', levels_T[at]
      names = [f'{letter}{level}'] * bool(level) + ['top'] * (at in top)
      shades[at] = '+'.join(names), self.amount(weights_T[at])
    return shades

  def amount(self, weight: float) -> str:
    if not self.attends:
      return f'{weight:+.3f}'
    return f'{100 * weight:.1f}' if weight >= 0.0005 else '<0.1'

  def button(
    self,
    label: ExplainedLabel,
    shade: _Shades,
    places: Mapping[int, int],
    pressed: bool,
  ) -> str:
    data = ' '.join(
      f'{places[at]}:{names}:{amount}' for at, (names, amount) in shade.items()
    )
    gold = ', gold' if label.is_gold else ''
    return (
      f'<button type="button" aria-pressed="{str(pressed).lower()}" '
      f'title="{escape(label.id)}" data-why="{escape(self.why(label))}" '
      f'data-words="{escape(data)}">{escape(label.name or label.id)} '
      f'{label.score:.2f}{gold}</button>'
    )

  def why(self, label: ExplainedLabel) -> str:
    """Returns a text that lists the words that explain a label best."""
    name = label.name or label.id
    words = ', '.join(
      f'{word.word} {self.amount(word.weight)}{self.unit}' for word in label.why
    )
    words = words or 'no words'
    if not label.features:
      return f'{name}: {words}'
    shares = _amounts(proposer_shares(label.features).items())
    features = _amounts(
      (part.name, part.weight) for part in label.features[:_FEATURES]
    )
    return f'{name}: {shares}. Features: {features}. Words: {words}'

  def texts(self, places: Iterable[int], shade: _Shades) -> Iterator[str]:
    """Yields the zones; what the model does not read is set apart."""
    document, words = self.explained.document, self.explained.words
    zones = {name: text for name, text in document.zones.items() if text}
    last = words[-1] if words else None
    read = last is not None
    for zone, text in zones.items():
      if len(zones) > 1:
        yield f'<h3>{escape(zone)}</h3>'
      end = 0 if not read else len(text)
      if last is not None and zone == last.zone:
        end, read = last.end, False
      rest = escape(text[end:])
      if (split_words if self.attends else split_terms)(text[end:]):
        title = 'The model does not read this part.'
        rest = f'<span class="unread" title="{title}">{rest}</span>'
      inside = [at for at in places if words[at].zone == zone]
      body = self.words(inside, shade, text[:end])
      yield f'<div class="text" dir="auto">{body}{rest}</div>'

  def words(self, inside: Sequence[int], shade: _Shades, text: str) -> str:
    parts, end = [], 0
    for at in inside:
      word = self.explained.words[at]
      names, amount = shade.get(at, ('', ''))
      title = f' title="{escape(amount)}{self.unit}"' if amount else ''
      classes = ' '.join(['word', *names.split('+')]).strip()
      # Two subwords may be parts of one character. This character must not be
      # written twice.
      inner = escape(text[max(end, word.start) : word.end])
      parts.append(
        f'{escape(text[end : word.start])}'
        f'<span class="{classes}"{title}>{inner}</span>'
      )
      end = max(end, word.end)
    return ''.join(parts) + escape(text[end:])


def _amounts(weights: Iterable[tuple[str, float]]) -> str:
  return ', '.join(f'{name} {weight:+.2f}' for name, weight in weights)
