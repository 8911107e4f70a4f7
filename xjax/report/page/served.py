"""Writes the HTML of the page on which a served model is tried by hand."""

from collections.abc import Sequence
from html import escape
from typing import Any

from xjax.judge.prediction_lines import ExplainedDocument
from xjax.report.page.explanations import SCRIPT, article, page_style
from xjax.report.page.html import html_file
from xjax.run.open_run import Prediction
from xjax.run.serve.request import USUAL_K

_STYLE = """\
form { max-width: 900px; }
label { font-weight: 600; }
textarea { box-sizing: border-box; width: 100%; min-height: 180px;
  margin: 4px 0 10px; padding: 8px; font: inherit; color: inherit;
  background: var(--page); border: 1px solid #8a939c; border-radius: 4px; }
input { font: inherit; width: 5em; padding: 3px 6px; margin: 0 14px 0 4px;
  color: inherit; background: var(--page); border: 1px solid #8a939c;
  border-radius: 4px; }
.row { display: flex; flex-wrap: wrap; align-items: center; gap: 8px 0; }
.row span { white-space: nowrap; }
textarea:focus-visible, input:focus-visible { outline: 3px solid #e69f00;
  outline-offset: 1px; }
#result { min-height: 60px; margin-top: 20px; }
#result[aria-busy="true"] { opacity: .5; }
.error { border-left: 4px solid #c22f2f; padding: 4px 12px;
  overflow-wrap: anywhere; }
"""

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

_SCRIPT = """\
<script>
const form = document.querySelector('form');
const result = document.getElementById('result');
form.addEventListener('submit', async (event) => {
  event.preventDefault();
  const text = {id: 'your text', text: form.text.value};
  const asked = {documents: [text], k: Number(form.k.value)};
  if (form.threshold.value) asked.threshold = Number(form.threshold.value);
  result.setAttribute('aria-busy', 'true');
  try {
    const answer = await fetch('shaded', {method: 'POST',
      headers: {'content-type': 'application/json'},
      body: JSON.stringify(asked)});
    const content = await answer.json();
    if (!answer.ok) throw new Error(content.error);
    result.innerHTML = content.html[0];
  } catch (error) {
    const line = document.createElement('p');
    line.className = 'error';
    line.textContent = error.message;
    result.replaceChildren(line);
  }
  result.removeAttribute('aria-busy');
});
form.text.addEventListener('keydown', (event) => {
  if (event.key === 'Enter' && (event.ctrlKey || event.metaKey))
    form.requestSubmit();
});
</script>
"""


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
    SCRIPT,
    _SCRIPT,
  ]
  return html_file(title, '\n'.join(parts), page_style() + _STYLE)


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
