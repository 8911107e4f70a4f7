"""Writes a report to files."""

import os

from xjax.core.atomic import atomic_write
from xjax.report.page.html import render_html
from xjax.report.page.latex import render_latex
from xjax.report.page.markdown import render_markdown
from xjax.report.page.page import Page


def save_report(
  page: Page,
  html: str,
  markdown: str = '',
  latex: str = '',
  latex_decimals: int = 1,
) -> list[str]:
  """Writes a report and returns the paths of its files; '' leaves a file out.

  The Markdown file has the tables. The LaTeX file has the table of results,
  with values times 100 and `latex_decimals` decimals.
  """
  texts = {html: render_html(page)}
  if markdown:
    texts[markdown] = render_markdown(page)
  if latex:
    texts[latex] = render_latex(page.results, True, latex_decimals)
  for path, text in texts.items():
    with atomic_write(os.path.expanduser(path)) as file:
      file.write(text)
  return list(texts)
