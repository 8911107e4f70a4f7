"""Writes the HTML of the page on which a served model is tried by hand."""

from collections.abc import Sequence
from html import escape
from typing import Any

from xjax.judge.prediction_lines import ExplainedDocument
from xjax.report.page.explanations import article
from xjax.report.page.page import html_file, page_file, script
from xjax.run.open_run import Prediction
from xjax.run.serve.request import USUAL_K

_FORM = """\
<form>
<label for="text">Text</label>
<textarea id="text" name="text" required dir="auto"
  placeholder="Paste or write a text"></textarea>
<div class="row">
<span><label for="k">Labels</label>
<input id="k" name="k" type="number" min="1" max="{max_k}" value="{k}"></span>
<span><label for="threshold">Least probability</label>
<input id="threshold" name="threshold" type="number" min="0" max="1"
  step="any" placeholder="none"></span>
<button type="submit">Predict</button>
</div>
</form>
<div id="result" aria-live="polite"></div>
"""

_ATTENTION = (
  'Choose one of the labels to shade the words to which it attends; the darker '
  'the shade, the more attention.'
)
_WEIGHTS = (
  'Choose one of the labels to shade its words: orange words raise the score '
  'of the label, blue words lower it.'
)


def page(facts: dict[str, Any]) -> str:
  """Returns the page; see run.serve.service.Pages."""
  title, max_k = f'Try {facts["run"]}', facts['max_k']
  shading = 'This model cannot explain its labels by words.'
  if facts['explains']:
    shading = _ATTENTION if facts['attends'] else _WEIGHTS
  parts = [
    f'<h1>{escape(title)}</h1>',
    f'<p>{escape(facts["model"])} with {facts["labels"]:,} labels, served by '
    f'xjax {escape(facts["version"])}. {shading} Ctrl+Enter predicts too.</p>',
    '<noscript><p class="error">This page needs JavaScript.</p></noscript>',
    _FORM.format(max_k=max_k, k=min(USUAL_K, max_k)),
    '<p class="why">Programs send the same requests: '
    '<code>curl -d \'{"documents": ["a text"], "k": 5}\' URL/predict'
    '</code>. Further paths: <a href="labels">labels</a>, '
    '<a href="health">health</a>, <a href="metrics">metrics</a>.</p>',
    script('explanations.js'),
    script('served.js'),
  ]
  return html_file(
    title,
    '\n'.join(parts),
    page_file('explanations.css') + page_file('served.css'),
  )


def shaded(explained: ExplainedDocument, attends: bool) -> str:
  """Returns a document with shaded words; see run.serve.service.Pages."""
  if not explained.labels:
    return plain(())
  return article(0, explained, attends)


def plain(labels: Sequence[Prediction]) -> str:
  """Returns a list of labels; see run.serve.service.Pages."""
  if not labels:
    return '<p>No label has this probability.</p>'
  items = ''.join(
    f'<li title="{escape(label.id)}">{escape(label.name or label.id)} '
    f'{label.score:.2f}</li>'
    for label in labels
  )
  return f'<ol>{items}</ol>'
