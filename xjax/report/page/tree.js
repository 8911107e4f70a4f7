// The data are in the element before the script. Names are written as text
// nodes, so they are never read as HTML.
(() => {
  const ROW = 34, LEVELS = 4, LETTER = 7.2, EMPTY = '#b9c0c7';
  const LEAST = 2, USUAL = 4, GAP = 30;  // widths of bars and of the grey bar
  const home = document.currentScript.parentElement;
  const data = JSON.parse(home.querySelector('.data').textContent);
  const {names, ids, parents, levels, widths, counts, palette} = data;
  const systems = Object.keys(data.values);
  const children = names.map(() => []), roots = [];
  parents.forEach((p, i) => (p < 0 ? roots : children[p]).push(i));
  for (const row of [roots, ...children])
    row.sort((a, b) => widths[b] - widths[a]);
  const whole = roots.reduce((sum, i) => sum + widths[i], 0);
  const below = (i) => i < 0 ? roots : children[i];
  const size = (i) => i < 0 ? whole : widths[i];
  const name = (i) => i < 0 ? 'all labels' : names[i];
  // The children of `focus` are drawn from place `first` on.
  let system = systems[0], focus = -1, first = 0, chosen = -1, lowest = 0;

  const make = (tag, attributes, parent) => {
    const node = document.createElementNS('http://www.w3.org/2000/svg', tag);
    for (const key in attributes) node.setAttribute(key, attributes[key]);
    return parent.appendChild(node);
  };
  const value = (i) => i < 0 ? null : data.values[system][i];
  const about = (i) => {
    if (i < 0) return `all labels: ${roots.length} at the top`;
    const parts = [`level ${levels[i]}`];
    if (counts[i] !== null) parts.push(`${data.count_name} ${counts[i]}`);
    const v = value(i);
    parts.push(v === null ? `no ${data.value_name}`
      : `${data.value_name} ${v.toFixed(3)}`);
    if (children[i].length) parts.push(`${children[i].length} below`);
    const id = ids[i] === names[i] ? '' : ` (${ids[i]})`;
    return `${names[i]}${id}: ${parts.join(', ')}`;
  };
  const said = home.querySelector('.said'), svg = home.querySelector('svg');
  const say = (text) => { said.textContent = text; };

  const bar = (i, x, y, width) => {
    const v = value(i);
    const steps = palette.length - 1;
    const [fill, ink] = v === null ? [EMPTY, 'black']
      : palette[Math.round(v * steps)];
    const mark = i === chosen && i >= 0 ? 'bar chosen' : 'bar';
    const group = make('g', {class: mark, tabindex: 0, role: 'button',
      'aria-label': about(i), 'data-node': i}, svg);
    make('rect', {x, y, width, height: ROW - 1, fill}, group);
    make('title', {}, group).textContent = about(i);
    const room = Math.floor((width - 8) / LETTER);
    if (room >= 3) {
      const text = make('text', {x: x + 5, y: y + ROW / 2 + 4, fill: ink},
        group);
      const words = name(i);
      text.textContent = words.length > room
        ? words.slice(0, room - 1) + '\u2026' : words;
    }
  };
  const gap = (i, start, x, y, width) => {
    const text = `${below(i).length - start} more labels`;
    const group = make('g', {class: 'bar', tabindex: 0, role: 'button',
      'aria-label': text, 'data-node': i, 'data-first': start}, svg);
    make('rect', {x, y, width, height: ROW - 1, fill: EMPTY, opacity: 0.4},
      group);
    make('title', {}, group).textContent = `${text}; click to see them`;
  };
  const total = (row) => row.reduce((sum, j) => sum + widths[j], 0);
  const place = (i, x, y, width, left) => {
    bar(i, x, y, width);
    lowest = Math.max(lowest, y + ROW);
    if (!left) return;
    const all = below(i), start = i === focus ? first : 0;
    let row = all.slice(start), sum = start ? total(row) : size(i);
    let room = width;
    if (i === focus && row.some((j) => widths[j] * room / sum < LEAST)) {
      // The first of these is wide enough, so a click on the gap goes on.
      row = row.slice(0, Math.max(1, Math.floor(width / USUAL)));
      sum = total(row);
      room -= GAP;
    }
    let at = x, n = 0;
    for (; n < row.length; n++) {
      const wide = widths[row[n]] * room / sum;
      if (wide < LEAST) break;
      place(row[n], at, y + ROW, wide, left - 1);
      at += wide;
    }
    const rest = x + (i === focus ? width : total(all) * room / sum) - at;
    if (start + n < all.length && rest >= 1)
      gap(i, start + n, at, y + ROW, rest);
  };
  const draw = () => {
    svg.replaceChildren();
    const path = [];
    for (let i = focus; i >= 0; i = parents[i]) path.unshift(parents[i]);
    const width = Math.max(home.clientWidth, 200);
    path.forEach((i, n) => bar(i, 0, n * ROW, width));
    lowest = 0;
    place(focus, 0, path.length * ROW, width, LEVELS);
    svg.setAttribute('width', width);
    svg.setAttribute('height', lowest);
    // Paper may be narrower than the screen.
    svg.setAttribute('viewBox', `0 0 ${width} ${lowest}`);
  };
  const bar_of = (i) =>
    svg.querySelector(`[data-node="${i}"]:not([data-first])`);
  const zoom = (i, start = 0) => {
    focus = i;
    first = start;
    draw();
    bar_of(i).focus({preventScroll: true});
    say(about(i));
  };
  const enter = (target) => {
    const group = target.closest('.bar');
    if (!group) return;
    const i = Number(group.dataset.node);
    if ('first' in group.dataset) zoom(i, Number(group.dataset.first));
    else if (i === focus && first) zoom(i);
    else if (i === focus && i >= 0) zoom(parents[i]);
    else if (below(i).length) zoom(i);
    else say(about(i));
  };
  svg.addEventListener('click', (event) => {
    enter(event.target);
  });
  svg.addEventListener('keydown', (event) => {
    if (event.key === 'Enter' || event.key === ' ') {
      event.preventDefault();
      enter(event.target);
    } else if (event.key === 'Escape' && focus >= 0) zoom(parents[focus]);
  });
  for (const kind of ['mouseover', 'focusin'])
    svg.addEventListener(kind, (event) => {
      const group = event.target.closest('.bar');
      if (group) say(group.getAttribute('aria-label'));
    });
  home.querySelector('input').addEventListener('change', (event) => {
    const words = event.target.value.trim().toLowerCase();
    const fits = (text) => text.toLowerCase().includes(words);
    chosen = words ? names.findIndex((text, i) => fits(text) || fits(ids[i]))
      : -1;
    if (words && chosen < 0) return say(`no label has \u201c${words}\u201d`);
    if (chosen < 0) return zoom(-1);
    const above = children[chosen].length ? chosen : parents[chosen];
    zoom(above);
    if (!bar_of(chosen)) zoom(above, below(above).indexOf(chosen));
    say(about(chosen));
  });
  home.addEventListener('click', (event) => {
    const button = event.target.closest('button');
    if (!button) return;
    system = systems[Number(button.dataset.system)];
    for (const other of home.querySelectorAll('button'))
      other.setAttribute('aria-pressed', String(other === button));
    draw();
  });
  window.addEventListener('resize', draw);
  home.hidden = false;
  draw();
  say(about(-1));
})();
