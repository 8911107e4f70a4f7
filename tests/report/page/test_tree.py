"""Checks the HTML of a tree that readers can zoom into."""

import dataclasses
import json
import re

import pytest
import quickjs

from tests.report.conftest import Reader
from xjax.report.page.page import (
  Page,
  Section,
  Tree,
  render_html,
  render_markdown,
)

TREE = Tree(
  names=['all </script><b>', 'one', 'two "2"'],
  ids=['a', 'b', 'c'],
  parents=[-1, 0, 0],
  levels=[1, 2, 2],
  widths=[9, 5, 4],
  counts=[None, 5, 4],
  values={'ours': [None, 1 / 3, 1.0], 'theirs <2>': [None, None, 0.0]},
  palette=[('#d55e00', '#1b1f24'), ('#0072b2', 'white')],
  count_name='support',
  value_name='F1',
  alt='a & b',
  caption='caption <1>',
)


def read(*blocks):
  text = render_html(Page('A page', [Section('One', blocks)]))
  return text, Reader(text)


def scripts(reader):
  return [x['text'] for x in reader.of('script')]


def test_the_page_has_all_data_of_the_tree():
  _, reader = read(TREE)
  data = json.loads(scripts(reader)[0])
  assert data['names'] == TREE.names and data['ids'] == TREE.ids
  assert data['parents'] == TREE.parents and data['widths'] == TREE.widths
  assert data['levels'] == TREE.levels and data['counts'] == TREE.counts
  assert data['values']['ours'] == [None, 0.3333, 1.0]
  assert list(data['values']) == list(TREE.values)


def test_names_never_end_the_script():
  text, reader = read(TREE)
  assert len(scripts(reader)) == 2 and text.count('</script>') == 2
  # Names are shown as texts only.
  assert 'innerHTML' not in scripts(reader)[1]


def test_the_page_asks_for_no_other_file():
  text, reader = read(TREE)
  assert not {'iframe', 'object'} & {x['tag'] for x in reader.found}
  assert reader.needs_nothing_else()
  names = re.findall(r'https?://\S+', text)
  assert set(names) == {"http://www.w3.org/2000/svg',"}  # a name, no address
  assert 'url(' not in text and 'fetch(' not in text and '@import' not in text


def test_without_javascript_the_drawing_is_hidden():
  _, reader = read(TREE)
  (tree,) = reader.of('div', 'tree')
  assert (
    'hidden' in tree and 'needs JavaScript' in reader.of('noscript')[0]['text']
  )
  (svg,) = reader.of('svg')
  assert svg['aria-label'] == 'a & b'


def test_a_button_for_each_of_several_systems():
  _, reader = read(TREE)
  buttons = reader.of('button')
  assert [a['data-system'] for a in buttons] == ['0', '1']
  assert [a['aria-pressed'] for a in buttons] == ['true', 'false']
  one = {'ours': TREE.values['ours']}
  _, reader = read(Tree(**{**vars(TREE), 'values': one}))
  assert not reader.of('button')


def test_markdown_describes_the_drawing():
  page = Page('A page', [Section('One', [TREE])])
  assert '*Picture, in the HTML report:* a & b' in render_markdown(page)


# A page that is just large enough for the script: it keeps the drawn elements.
FAKE_PAGE = """\
const listeners = {};
class Element {
  constructor(tag) { this.tag = tag; this.children = []; this.dataset = {}; }
  setAttribute(key, value) {
    this[key] = value;
    if (key === 'data-node') this.dataset.node = String(value);
    if (key === 'data-first') this.dataset.first = String(value);
  }
  getAttribute(key) { return String(this[key]); }
  appendChild(child) {
    child.parent = this;
    this.children.push(child);
    return child;
  }
  replaceChildren() { this.children = []; }
  closest() { return this.class?.startsWith('bar') ? this : null; }
  focus() {}
  addEventListener(kind, f) { listeners[`${this.tag} ${kind}`] = f; }
}
const parts = {svg: new Element('svg'), input: new Element('input'),
  '.said': new Element('p'), '.data': {textContent: DATA}};
parts.svg.querySelector = (selector) => {
  const node = selector.match(/"(-?\\d+)"/)[1];
  return parts.svg.children.find(
    (x) => x.dataset.node === node && !('first' in x.dataset)) ?? null;
};
const home = {clientWidth: 1000, querySelector: (name) => parts[name],
  querySelectorAll: () => [], addEventListener() {},
  previousElementSibling: {}};
globalThis.window = {addEventListener() {}};
globalThis.document = {currentScript: {parentElement: home},
  createElementNS: (_, tag) => new Element(tag)};
const drawn = () => parts.svg.children.filter((x) => !('first' in x.dataset))
  .map((x) => Number(x.dataset.node));
const gap = () => parts.svg.children.find((x) => 'first' in x.dataset);
const click = (target) => listeners['svg click']({target});
const find = (value) => listeners['input change']({target: {value}});
"""
# Clicks on the grey bar until all nodes were drawn; finds the last node.
VISIT = """\
const seen = new Set(drawn());
let clicks = 0;
for (; gap() && clicks < 99; clicks++) {
  click(gap());
  drawn().forEach((i) => seen.add(i));
}
find('n599');
JSON.stringify([seen.size, clicks, drawn().includes(599)]);
"""


@pytest.mark.parametrize('widths', [[1] * 600, [10**6, *range(599, 0, -1)]])
def test_readers_can_reach_narrow_siblings(widths):
  ids = [f'n{i}' for i in range(600)]
  tree = dataclasses.replace(
    TREE,
    names=ids,
    ids=ids,
    parents=[-1] * 600,
    levels=[1] * 600,
    widths=widths,
    counts=widths,
    values={'ours': [0.5] * 600},
  )
  _, reader = read(tree)
  data, script = scripts(reader)[:2]
  visited = quickjs.Context().eval(
    f'const DATA = {json.dumps(data)};\n{FAKE_PAGE}{script}{VISIT}'
  )
  n_seen, n_clicks, found = json.loads(visited)
  assert (n_seen, found) == (601, True)  # and the bar of all labels
  assert 1 <= n_clicks < 20
