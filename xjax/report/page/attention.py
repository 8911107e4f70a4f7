"""Writes an HTML page that shows to which words predicted labels attend.

Each label is a button. A click on the button shades the words to which the
label attends. In a browser without JavaScript, only the words of each
document's best label are shaded.
"""

from collections.abc import Iterator, Mapping, Sequence
from html import escape
import pathlib

import numpy as np

from xjax.data.text.words import split_words
from xjax.judge.prediction_lines import (
  ExplainedDocument,
  ExplainedLabel,
  Explanations,
  attended_words,
)
from xjax.report.page.html import html_file

_LEVELS = 8
_DARKEST = (245, 166, 35)  # RGB; the contrast ratio with dark text is 8
_Rgb = tuple[int, int, int]
# Text is light on a dark page; its contrast ratio with this shade is 5.
_PAGE, _BRIGHTEST = (21, 24, 28), (140, 80, 0)

_STYLE = """\
article { border-top: 1px solid var(--line); margin: 28px -4px 0;
  padding: 0 4px; content-visibility: auto;
  contain-intrinsic-size: auto 480px; }
article h2 { border: 0; margin: 0 0 8px; padding-top: 12px; font-size: 17px;
  overflow-wrap: anywhere; }
.labels { display: flex; flex-wrap: wrap; gap: 6px; }
button { font: inherit; font-size: 13.5px; color: inherit; cursor: pointer;
  text-align: left; padding: 3px 9px; border: 1px solid #8a939c;
  border-radius: 4px; background: var(--page); overflow-wrap: anywhere; }
button:hover { background: var(--mark); }
button[aria-pressed="true"] { background: #0b57a4; border-color: #0b57a4;
  color: #fff; }
button:focus-visible { outline: 3px solid #e69f00; outline-offset: 1px; }
.why { color: var(--soft); font-size: 14px; }
h3 { font-size: 13px; color: var(--soft); margin: 12px 0 0; font-weight: 600; }
.text { max-width: 900px; margin: 4px 0; line-height: 1.75;
  white-space: pre-wrap; overflow-wrap: anywhere; }
.text span { border-radius: 3px; -webkit-print-color-adjust: exact;
  print-color-adjust: exact; }
.text .top { text-decoration: underline; text-underline-offset: 3px;
  text-decoration-thickness: 2px; }
.text .unread { color: var(--soft); font-style: italic; }
"""

_SCRIPT = """\
<script>
document.addEventListener('click', (event) => {
  const button = event.target.closest('button');
  if (!button) return;
  const article = button.closest('article');
  for (const other of article.querySelectorAll('button'))
    other.setAttribute('aria-pressed', String(other === button));
  article.querySelector('.why').textContent = button.dataset.why;
  const words = article.querySelectorAll('.word');
  for (const word of words) {
    word.className = 'word';
    word.removeAttribute('title');
  }
  for (const part of button.dataset.words.split(' ').filter(Boolean)) {
    const [at, names, share] = part.split(':');
    words[at].className = 'word ' + names.replace('+', ' ');
    words[at].title = share + ' %';
  }
});
</script>
"""


def _title(lines: pathlib.Path) -> str:
  return f'Attention of the labels of {lines.name}'


def attention_page(explanations: Explanations) -> str:
  """Returns the page as HTML that needs no other file."""
  title = _title(explanations.path)
  shown, n_documents = explanations.documents, explanations.n_documents
  count = f'{n_documents:,} documents'
  if len(shown) < n_documents:
    count = f'The first {len(shown):,} of {count}'
  parts = [
    f'<h1>{escape(title)}</h1>',
    f'<p>{count}. Choose a label to shade the words to which the label '
    'attends. The palest shade is about the attention that a word would have '
    'if the label attended to all words evenly. Each darker shade is twice as '
    'much attention as the shade before it. A word without a shade has '
    f'clearly less. The {explanations.words} words with the most '
    'attention are underlined. The '
    'attention of all words that the model reads adds up to 100 %.</p>',
    _contents(shown),
    *(_article(i, d, explanations.words) for i, d in enumerate(shown)),
    _SCRIPT,
  ]
  return html_file(title, '\n'.join(parts), _STYLE + ''.join(_shades()))


def _shades() -> Iterator[str]:
  """Yields the CSS class of each shade, from the palest to the strongest."""
  yield from _blends((255, 255, 255), _DARKEST)
  yield '@media screen and (prefers-color-scheme: dark) {\n'
  yield from _blends(_PAGE, _BRIGHTEST)
  yield '}\n'


def _blends(page: _Rgb, full: _Rgb) -> Iterator[str]:
  for level in range(1, _LEVELS + 1):
    red, green, blue = (
      round(a + (b - a) * level / _LEVELS) for a, b in zip(page, full)
    )
    yield f'.text .a{level} {{ background: rgb({red}, {green}, {blue}); }}\n'


def _contents(shown: Sequence[ExplainedDocument]) -> str:
  links = ''.join(
    f'<li><a href="#document-{i}">{escape(explained.document.id)}</a></li>'
    for i, explained in enumerate(shown)
  )
  return f'<details><summary>Documents</summary>\n<ol>{links}</ol>\n</details>'


def _article(number: int, explained: ExplainedDocument, n_top: int) -> str:
  """Returns the HTML of a document: a button per label, and shaded text."""
  shades = [_shade(label.weights_T, n_top) for label in explained.labels]
  # To keep the page small, a word becomes an HTML element only if a label of
  # the document shades or underlines the word.
  order = sorted({at for shade in shades for at in shade})
  places = {at: place for place, at in enumerate(order)}
  buttons = [
    _button(explained, label, shade, places, n_top, pressed=not i)
    for i, (label, shade) in enumerate(
      zip(explained.labels, shades, strict=True)
    )
  ]
  why = _why(explained, explained.labels[0], n_top) if buttons else ''
  texts = _texts(explained, order, shades[0] if shades else {})
  name = escape(explained.document.id)
  return (
    f'<article id="document-{number}">\n<h2>{name}</h2>\n'
    f'<div class="labels" role="group" aria-label="Labels of {name}">\n'
    + '\n'.join(buttons)
    + f'\n</div>\n<p class="why" aria-live="polite">{escape(why)}</p>\n'
    + '\n'.join(texts)
    + '\n</article>'
  )


def _shade(weights_T: np.ndarray, n_top: int) -> dict[int, tuple[str, str]]:
  """Returns how to shade each word of a document, by number of the word.

  The shade depends on the weight of a word times the number of words. If a
  label attends to all words evenly, this product is 1 for each of them, and all
  of them get the palest shade.

  Returns:
    Word number -> (CSS classes, percentage). Words that are neither shaded nor
    underlined are left out.
  """
  if not weights_T.max(initial=0):
    return {}
  times_T = len(weights_T) * weights_T.astype(np.float64)
  # Times 1, 2, 4, ... are the levels 1, 2, 3, ...; rounding begins a level
  # at the middle between two of them.
  levels_T = np.floor(np.log2(np.maximum(times_T, 1e-9)) + 1.5)
  levels_T = np.clip(levels_T, 0, _LEVELS).astype(int)
  top = set(np.argsort(-weights_T, kind='stable')[:n_top].tolist())
  return {
    at: (
      '+'.join(
        [f'a{levels_T[at]}'] * bool(levels_T[at]) + ['top'] * (at in top)
      ),
      _percent(weights_T[at]),
    )
    for at in sorted(top | set(np.flatnonzero(levels_T).tolist()))
  }


def _percent(weight: float) -> str:
  return f'{100 * weight:.1f}' if weight >= 0.0005 else '<0.1'


def _button(
  explained: ExplainedDocument,
  label: ExplainedLabel,
  shade: Mapping[int, tuple[str, str]],
  places: Mapping[int, int],
  n_top: int,
  pressed: bool,
) -> str:
  data = ' '.join(
    f'{places[at]}:{names}:{share}' for at, (names, share) in shade.items()
  )
  gold = ', gold' if label.is_gold else ''
  return (
    f'<button type="button" aria-pressed="{str(pressed).lower()}" '
    f'title="{escape(label.id)}" '
    f'data-why="{escape(_why(explained, label, n_top))}" '
    f'data-words="{escape(data)}">{escape(label.name or label.id)} '
    f'{label.score:.2f}{gold}</button>'
  )


def _why(
  explained: ExplainedDocument, label: ExplainedLabel, n_top: int
) -> str:
  """Returns a text that lists the words to which a label attends most."""
  weights_T = label.weights_T
  at_W = np.argsort(-weights_T, kind='stable')[:n_top]
  words = attended_words(
    explained.document, explained.words, at_W, weights_T[at_W]
  )
  items = (f'{word.word} {_percent(word.weight)} %' for word in words)
  return f'{label.name or label.id}: {", ".join(items) or "no words"}'


def _texts(
  explained: ExplainedDocument,
  order: Sequence[int],
  shade: Mapping[int, tuple[str, str]],
) -> Iterator[str]:
  """Yields the HTML of each zone's text, with an element per shaded word."""
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
    body = _words(explained, order, shade, zone, text[:end])
    yield f'<div class="text" dir="auto">{body}{_rest(text[end:])}</div>'


def _words(
  explained: ExplainedDocument,
  order: Sequence[int],
  shade: Mapping[int, tuple[str, str]],
  zone: str,
  text: str,
) -> str:
  parts, end = [], 0
  for at in order:
    word = explained.words[at]
    if word.zone == zone:
      names, share = shade.get(at, ('', ''))
      title = f' title="{escape(share)} %"' if share else ''
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


def _rest(text: str) -> str:
  """Returns the HTML of the text after the last word that the model reads."""
  if not split_words(text):
    return escape(text)
  title = 'The model does not read this part.'
  return f'<span class="unread" title="{title}">{escape(text)}</span>'
