// The dashboard's script, a convenience: pages, filters, previews and actions are links and forms, and work without it.
(() => {
  'use strict';
  const root = document.documentElement;
  const one = (selector, within = document) => within.querySelector(selector);
  const all = (selector, within = document) => [...within.querySelectorAll(selector)];
  const by = id => document.getElementById(id);
  const make = (name, attributes = {}, ...children) => {
    const element = document.createElement(name);
    for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
    element.append(...children);
    return element;
  };
  const icon = name => {
    const svg = document.createElementNS('http://www.w3.org/2000/svg', 'svg');
    const use = document.createElementNS('http://www.w3.org/2000/svg', 'use');
    svg.setAttribute('class', 'i');
    svg.setAttribute('aria-hidden', 'true');
    use.setAttribute('href', `#i-${name}`);
    svg.append(use);
    return svg;
  };
  const kept = (key, value) => {
    try {
      if (value === undefined) return sessionStorage.getItem(key);
      value === null ? sessionStorage.removeItem(key) : sessionStorage.setItem(key, value);
    } catch { return null }
  };

  // ---- Times: by the server's clock, so that a wrong clock here does no harm. The rules are those of format.rs.
  const loaded = Date.now(), served = Date.parse(root.dataset.now) || loaded;
  const now = () => served + Date.now() - loaded;
  const two = (s, great, name, small, rest) => {
    const left = Math.floor(s % great / small);
    return `${Math.floor(s / great)} ${name}${left ? ` ${left} ${rest}` : ''}`;
  };
  const age = s => s < 60 ? `${s} s` : s < 3600 ? `${Math.floor(s / 60)} min` : s < 36000 ? two(s, 3600, 'h', 60, 'min')
    : s < 172800 ? `${Math.floor(s / 3600)} h` : s < 864000 ? two(s, 86400, 'd', 3600, 'h') : `${Math.floor(s / 86400).toLocaleString('en')} d`;
  const span = s => s < 1 ? `${Math.round(s * 1000)} ms` : s < 10 ? `${+s.toFixed(1)} s` : s < 60 ? `${Math.floor(s)} s`
    : s < 3600 ? two(s, 60, 'min', 1, 's') : s < 86400 ? two(s, 3600, 'h', 60, 'min') : two(s, 86400, 'd', 3600, 'h');
  const months = 'Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec'.split(' '), days = 'Sun Mon Tue Wed Thu Fri Sat'.split(' ');
  const inZone = at => new Date(at - (root.dataset.zone === 'utc' ? 0 : new Date(at).getTimezoneOffset() * 60000));
  const clock = (date, seconds = true) => date.toISOString().slice(11, seconds ? 19 : 16);
  const day = date => `${date.getUTCDate()} ${months[date.getUTCMonth()]}`;
  const written = (at, form) => {
    const date = inZone(at), today = inZone(now());
    if (form === 'hm' || form === 'hms') return clock(date, form === 'hms');
    if (form === 'day') return `${days[date.getUTCDay()]} ${day(date)}`;
    if (date.toISOString().slice(0, 10) === today.toISOString().slice(0, 10)) return clock(date);
    return date.getUTCFullYear() === today.getUTCFullYear() ? `${day(date)} ${clock(date, false)}` : `${day(date)} ${date.getUTCFullYear()}`;
  };
  const exact = at => {
    const date = inZone(at), offset = (date - at) / 60000, abs = Math.abs(offset), pad = n => String(n).padStart(2, '0');
    const zone = root.dataset.zone === 'utc' ? 'UTC' : `${offset < 0 ? '−' : '+'}${pad(Math.floor(abs / 60))}:${pad(abs % 60)}`;
    return `${days[date.getUTCDay()]} ${day(date)} ${date.getUTCFullYear()} ${clock(date)} ${zone}`;
  };
  const relative = (at, rel) => {
    const seconds = Math.floor((now() - at) / 1000);
    if (rel === 'for') return age(Math.abs(seconds));
    if (root.dataset.times === 'absolute') return written(at);
    return seconds < 0 ? `in ${age(-seconds)}` : `${age(seconds)} ago`;
  };
  const show = (element, text) => { if (element.textContent !== text) element.textContent = text };
  const tick = within => all('time[data-rel]', within).forEach(time => {
    const at = Date.parse(time.dateTime);
    if (at) show(time, relative(at, time.dataset.rel));
  });
  const times = (within = document) => {
    tick(within);
    all('time[datetime], [data-at]', within).forEach(time => {
      const at = Date.parse(time.dateTime || time.dataset.at);
      if (!at) return;
      if (!time.dataset.rel) show(time, written(at, time.dataset.form));
      if (time.title !== undefined) time.title = exact(at);
    });
  };

  // ---- Toasts. Errors stay until they are closed.
  const settle = toast => {
    if (toast.classList.contains('t-bad')) {
      const close = make('button', { class: 'icon-btn', type: 'button', 'aria-label': 'Close' }, icon('close'));
      close.onclick = () => toast.remove();
      toast.append(close);
    } else setTimeout(() => toast.remove(), 6000);
  };
  const say = (text, tone = 'ok') => {
    const toast = make('div', { class: `toast t-${tone}`, ...tone === 'bad' && { role: 'alert' } }, icon(tone === 'bad' ? 'failed' : 'done'), make('div', {}, text));
    by('toasts')?.append(toast);
    settle(toast);
  };
  // A reload must not say again what came of a request.
  const done = () => {
    all('[data-done]').forEach(settle);
    const url = new URL(location.href);
    if (url.searchParams.has('done')) {
      url.searchParams.delete('done');
      history.replaceState(history.state, '', url);
    }
  };

  // ---- Live updates: patches of elements by id. What the reader is busy with is left alone and tried again.
  const live = { source: null, timer: 0, wait: 1000, since: 0, away: false, over: false, paused: kept('paused') === '1', waiting: new Map(), last: new WeakMap() };
  const typing = () => document.activeElement?.matches('input:not([type=checkbox], [type=radio]), textarea, select') && !document.activeElement.closest('.topbar, dialog');
  const listIsBusy = () => by('drawer') || typing() || one('[data-list] input[type=checkbox]:checked');
  const isBusy = element => {
    const focus = document.activeElement, selection = getSelection();
    return focus !== document.body && element.contains(focus)
      || one('details[open], dialog[open], input:checked', element)
      || selection && !selection.isCollapsed && selection.containsNode(element, true)
      || element.closest('[data-list]') && listIsBusy();
  };
  const flush = () => live.waiting.forEach((patch, id) => {
    const element = by(id);
    if (!element?.matches(patch.gone ? '[data-row]' : '[data-live]')) return live.waiting.delete(id);
    if (isBusy(element)) return;
    live.waiting.delete(id);
    if (patch.gone) {
      element.classList.add('gone');
      element.title = 'It no longer belongs to this list';
    } else if (live.last.get(element) !== patch.html) {
      live.last.set(element, patch.html);
      const newer = element.cloneNode(false);
      newer.innerHTML = patch.html;
      times(newer);
      reopen(newer);
      if (!newer.isEqualNode(element)) element.replaceChildren(...newer.childNodes);
    }
  });
  // A row that is not in the list any more is dimmed, and one that is back is as the others.
  const listed = (row, is) => {
    if (!is) return live.waiting.set(row.id, { id: row.id, gone: true });
    live.waiting.delete(row.id);
    if (row.classList.contains('gone')) row.removeAttribute('title');
    row.classList.remove('gone');
  };
  const take = patch => {
    if (patch.rows) all('[data-row]').forEach(row => listed(row, patch.rows.includes(row.id)));
    else if (patch.gone === undefined) live.waiting.set(patch.id, patch);
    else if (by(patch.id)?.matches('[data-row]')) listed(by(patch.id), !patch.gone);
  };
  const state = () => {
    const button = by('live'), lost = live.away || live.over || live.since && Date.now() - live.since >= 5000;
    if (!button) return;
    const [name, text] = live.paused ? ['paused', 'Paused'] : lost ? ['lost', 'Not live'] : ['live', 'Live'];
    button.dataset.state = name;
    button.setAttribute('aria-pressed', live.paused);
    button.setAttribute('aria-label', `Live updates: ${text}`);
    button.title = live.paused ? 'Resume live updates (p)' : 'Pause live updates (p)';
    show(one('span', button), text);
    const bar = by('stale'), shown = !!lost && !live.paused;
    if (bar.hidden !== shown) return;
    bar.hidden = !shown;
    const why = live.over ? 'What this page shows is gone, or you may no longer see it' : live.away ? 'The store does not answer' : 'The connection is lost';
    if (shown) one('span', bar).textContent = `${why}. The page stands still since ${written(now() - Date.now() + live.since, 'hms')}.`;
  };
  const stop = () => { live.source?.close(); live.source = null; clearTimeout(live.timer) };
  const start = () => {
    stop();
    if (!root.dataset.live || live.paused || live.over || document.hidden) return state();
    const source = live.source = new EventSource(root.dataset.live);
    const heard = () => { live.since = live.away ? live.since : 0; live.wait = 1000; state() };
    source.onopen = heard;
    source.addEventListener('patch', event => {
      heard();
      JSON.parse(event.data).forEach(take);
      flush();
    });
    source.addEventListener('stale', () => { live.away = true; live.since ||= Date.now(); state() });
    source.addEventListener('fresh', () => { live.away = false; live.since = 0; state() });
    source.addEventListener('over', () => { live.over = true; live.since = Date.now(); stop(); state() });
    source.onerror = () => {
      if (live.source !== source) return;
      stop();
      live.since ||= Date.now();
      live.timer = setTimeout(start, live.wait * (.8 + Math.random() * .4));
      live.wait = Math.min(live.wait * 2, 30000);
      state();
    };
  };
  const pause = () => {
    if (!root.dataset.live) return;
    live.paused = !live.paused;
    kept('paused', live.paused ? '1' : null);
    live.since = 0;
    live.wait = 1000;
    live.paused ? stop() : start();
    state();
  };

  // ---- Trees: the nodes that the reader opened or closed stay so.
  const opened = () => { try { return JSON.parse(kept(`open ${location.pathname}`)) || {} } catch { return {} } };
  const reopen = within => {
    const nodes = opened();
    all('details[data-node]', within).forEach(node => { if (node.dataset.node in nodes) node.open = nodes[node.dataset.node] });
  };
  addEventListener('toggle', event => {
    const node = event.target;
    if (!node.matches?.('details[data-node]')) return;
    const nodes = opened();
    if (nodes[node.dataset.node] === node.open) return;
    nodes[node.dataset.node] = node.open;
    kept(`open ${location.pathname}`, JSON.stringify(nodes));
  }, true);

  // ---- Lists: rows by key, ticks, the bar of actions.
  const rows = () => all('[data-list] tbody tr, ul[data-list] > li').filter(row => one('a[href]', row));
  const main = row => one('a.key, h3 a, a[href]', row);
  const row = () => document.activeElement?.closest('[data-list] tr, [data-list] > li');
  const move = step => {
    const list = rows(), at = list.indexOf(row());
    const to = list[at < 0 ? (step > 0 ? 0 : list.length - 1) : Math.max(0, Math.min(list.length - 1, at + step))];
    if (to) main(to).focus({ focusVisible: true });
  };
  const boxes = () => all('input[name=job]');
  const count = () => {
    const picked = boxes().filter(box => box.checked).length;
    if (by('picked')) show(by('picked'), String(picked));
    all('[data-all]').forEach(box => { box.checked = picked > 0 && picked === boxes().length; box.indeterminate = picked > 0 && !box.checked });
    flush();
  };
  const choose = on => { boxes().forEach(box => box.checked = on); count() };

  // ---- Drawer: a preview is a page with a section beside it. The script adds the section to this page, so ticks and scroll stay. If
  // that fails, the link leads there as it would without the script.
  let opener = null;
  const enter = drawer => (one('[autofocus]', drawer) || drawer).focus();
  const symbols = page => all('symbol, pattern', page).forEach(symbol => by(symbol.id) || one('.sprite')?.append(document.importNode(symbol, true)));
  const preview = async (url, from) => {
    try {
      const answer = await fetch(url, { headers: { Accept: 'text/html' } });
      const page = new DOMParser().parseFromString(await answer.text(), 'text/html'), drawer = page.getElementById('drawer');
      if (!drawer || answer.redirected) throw 0;
      all('#drawer, .veil').forEach(old => old.remove());
      symbols(page);
      const veil = one('.veil', page);
      by('toasts').before(...[veil, drawer].filter(Boolean).map(part => document.importNode(part, true)));
      history[history.state?.drawer ? 'replaceState' : 'pushState']({ drawer: true }, '', url);
      opener = from;
      times(by('drawer'));
      enter(by('drawer'));
    } catch { location.href = url }
  };
  const leave = () => {
    all('#drawer, .veil').forEach(part => part.remove());
    opener?.isConnected && opener.focus();
    opener = null;
    flush();
  };
  const shut = () => {
    if (!by('drawer')) return false;
    // One that was opened here is a step back; one that came with the page is closed by a link.
    if (history.state?.drawer) history.back(); else location.href = by('drawer-close').href;
    return true;
  };
  addEventListener('popstate', () => {
    if (by('drawer') && !new URLSearchParams(location.search).has('preview')) leave();
    else if (new URLSearchParams(location.search).has('preview')) location.reload();
  });

  // ---- Preferences: the server keeps them in cookies, and they take effect at once.
  const prefer = (name, value) => {
    const form = by('preferences');
    if (name === 'theme') value === 'system' ? delete root.dataset.theme : root.dataset.theme = value;
    else root.dataset[name] = value;
    all(`[name=${name}]`, form).forEach(button => button.setAttribute('aria-pressed', button.value === value));
    times();
    const body = new URLSearchParams(new FormData(form));
    body.set(name, value);
    fetch(form.action, { method: 'POST', body, redirect: 'manual' }).catch(() => {});
  };
  const theme = () => {
    const dark = root.dataset.theme ? root.dataset.theme === 'dark' : matchMedia('(prefers-color-scheme: dark)').matches;
    prefer('theme', dark ? 'light' : 'dark');
  };

  // ---- Command palette: actions of the page, jobs from the server, pages.
  const dialog = (className, label, ...children) => {
    const element = make('dialog', { class: className, 'aria-label': label, tabindex: '-1' }, ...children);
    element.onclick = event => event.target === element && element.close();
    document.body.append(element);
    return element;
  };
  let palette, found = [], asked = 0, current = 0, hits = [];
  const commands = text => {
    const pages = all('.side nav a').map(a => ({ group: 'Go to', text: one('.name', a).textContent, keys: ['g', a.dataset.go], run: () => a.click() }));
    const actions = all('[data-cmd]').map(a => ({ group: 'On this page', text: a.dataset.cmd, run: () => a.click() }));
    const submit = one('.submit');
    const other = [
      ...submit ? [{ group: 'Other', text: 'Submit a job', keys: ['n'], run: () => submit.click() }] : [],
      { group: 'Other', text: 'Switch between light and dark', keys: ['t'], run: theme },
      ...root.dataset.live ? [{ group: 'Other', text: live.paused ? 'Resume live updates' : 'Pause live updates', keys: ['p'], run: pause }] : [],
      { group: 'Other', text: 'Keyboard shortcuts', keys: ['?'], run: help },
    ];
    const low = text.toLowerCase(), matches = item => item.text.toLowerCase().includes(low);
    return [...actions.filter(matches), ...found, ...[...pages, ...other].filter(matches),
      ...text ? [{ group: 'Search', text: `Find “${text}”`, run: () => location.href = `/find?q=${encodeURIComponent(text)}` }] : []].slice(0, 24);
  };
  const draw = () => {
    const input = one('input', palette), list = one('ul', palette);
    let group;
    hits = commands(input.value.trim());
    current = Math.max(0, Math.min(current, hits.length - 1));
    list.replaceChildren();
    hits.forEach((hit, number) => {
      if (hit.group !== group) list.append(make('li', { class: 'group', role: 'presentation' }, group = hit.group));
      const option = make('li', { role: 'option', id: `hit-${number}`, 'aria-selected': number === current }, make('bdi', {}, hit.text),
        ...hit.more ? [make('small', {}, make('bdi', {}, hit.more))] : [], ...(hit.keys || []).map(key => make('kbd', {}, key)));
      option.onclick = () => choice(number);
      list.append(option);
    });
    input.setAttribute('aria-activedescendant', hits.length ? `hit-${current}` : '');
    by(`hit-${current}`)?.scrollIntoView({ block: 'nearest' });
  };
  const choice = number => { palette.close(); hits[number]?.run() };
  const ask = async text => {
    const turn = ++asked;
    await new Promise(resolve => setTimeout(resolve, 150));
    if (turn !== asked) return;
    try {
      const answer = text ? await (await fetch(`/find?q=${encodeURIComponent(text)}&json`, { headers: { Accept: 'application/json' } })).json() : [];
      if (turn !== asked) return;
      found = answer.slice(0, 8).map(({ text, more, href }) => ({ group: 'Jobs', text, more, run: () => location.href = href }));
    } catch { found = [] }
    draw();
  };
  const search = (text = '') => {
    if (!palette) {
      palette = dialog('palette', 'Command palette', make('input', { type: 'text', role: 'combobox', 'aria-expanded': 'true', 'aria-controls': 'hits', 'aria-autocomplete': 'list', 'aria-label': 'Find a job, page or action', placeholder: 'A job’s key or id, a page, an action', autocomplete: 'off', spellcheck: 'false', maxlength: '300' }), make('ul', { id: 'hits', role: 'listbox', 'aria-label': 'Found' }));
      const input = one('input', palette);
      input.oninput = () => { current = 0; draw(); ask(input.value.trim()) };
      input.onkeydown = event => {
        const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
        if (step) { event.preventDefault(); current += step; draw() }
        if (event.key === 'Enter' && !event.isComposing) { event.preventDefault(); choice(current) }
      };
    }
    one('input', palette).value = text;
    current = 0;
    found = [];
    draw();
    if (!palette.open) palette.showModal();
    if (text) ask(text);
  };

  // ---- Keys. One table: what they do, and what the help says.
  const press = key => one(`[data-key="${key}"]`)?.click();
  const keys = [
    ['/', 'Search, commands', () => search()], ['?', 'This list', () => help()],
    ['j', 'Next row', () => move(1)], ['k', 'Previous row', () => move(-1)], ['Enter', 'Open the row'],
    ['x', 'Select the row', () => { const box = one('input[name=job]', row() || make('i')); if (box) { box.checked = !box.checked; count() } }],
    ['X', 'Select all on the page', () => choose(true)],
    ['r', 'Retry, with a preview', () => press('r')],
    ['y', 'Copy the id', () => (one('[data-copy]', row() || make('i')) || one('main [data-copy]'))?.click()],
    ['n', 'Submit a job', () => press('n')], ['p', 'Pause live updates', pause], ['t', 'Light or dark', theme], ['Escape', 'Close, clear the selection'],
  ];
  let helping;
  const help = () => {
    if (!helping) {
      const line = (text, ...names) => make('div', {}, make('dt', {}, text), make('dd', {}, ...names.flatMap(name => [make('kbd', {}, name), ' '])));
      const named = { X: ['shift', 'x'], Enter: ['enter'], Escape: ['esc'], '/': ['/', '⌘K'] };
      helping = dialog('keys', 'Keyboard shortcuts', make('h2', {}, 'Keyboard shortcuts'), make('dl', {},
        ...keys.map(([key, text]) => line(text, ...named[key] || [key])),
        ...all('.side nav a').map(a => line(one('.name', a).textContent, 'g', a.dataset.go))));
    }
    helping.showModal();
  };
  let going = 0;
  addEventListener('keydown', event => {
    if ((event.metaKey || event.ctrlKey) && event.key === 'k') { event.preventDefault(); return search() }
    if (event.metaKey || event.ctrlKey || event.altKey || event.isComposing) return;
    const target = event.target, menu = target.closest?.('details.menu[open]');
    if (event.key === 'Escape' && !one('dialog[open]')) {
      if (menu) { menu.open = false; return one('summary', menu).focus() }
      if (location.hash === '#nav') return location.hash = '#main';
      if (shut()) return;
      if (target.matches('input:not([type=checkbox], [type=radio]), textarea')) return target.blur();
      return choose(false);
    }
    if (event.key === 'Tab' && by('drawer')) return trap(event);
    if (target.matches?.('input:not([type=checkbox], [type=radio]), textarea, select') || one('dialog[open]')) return;
    if (going && Date.now() - going < 1500) {
      going = 0;
      const page = one(`[data-go="${CSS.escape(event.key)}"]`);
      if (page) { event.preventDefault(); page.click() }
      return;
    }
    if (event.key === 'g') return going = Date.now();
    if (by('drawer')) return;
    const action = keys.find(([key, , run]) => key === event.key && run);
    if (action) { event.preventDefault(); action[2]() }
  });
  // While a drawer is open, Tab stays in it.
  const trap = event => {
    const inside = all('a[href], button, input:not([type=hidden]), select, textarea, summary', by('drawer')).filter(e => !e.disabled && e.offsetParent);
    const first = inside[0], last = inside.at(-1), at = document.activeElement;
    if (event.shiftKey ? at === first || at === by('drawer') : at === last) { event.preventDefault(); (event.shiftKey ? last : first)?.focus() }
    else if (!by('drawer').contains(at)) { event.preventDefault(); first?.focus() }
  };

  // ---- Copying, menus, forms.
  const copy = async button => {
    try {
      const text = button.dataset.copyUrl ? await (await fetch(button.dataset.copyUrl)).text() : button.dataset.copy;
      if (navigator.clipboard) await navigator.clipboard.writeText(text);
      else {
        // Without TLS only a selection can be copied.
        const area = make('textarea', { class: 'sr' });
        area.value = text;
        document.body.append(area);
        area.select();
        const worked = document.execCommand('copy');
        area.remove();
        if (!worked) throw 0;
      }
      say('Copied');
    } catch { say('It cannot be copied here. Select the text instead.', 'bad') }
  };
  addEventListener('click', event => {
    const target = event.target, plain = !event.metaKey && !event.ctrlKey && !event.shiftKey && event.button === 0;
    all('details.menu[open]').forEach(menu => menu.contains(target) || (menu.open = false));
    const button = target.closest?.('[data-copy], [data-copy-url]');
    if (button) return copy(button);
    const spoken = target.closest?.('[data-toast]');
    if (spoken) say(spoken.dataset.toast, spoken.dataset.tone);
    const link = target.closest?.('a[data-preview]');
    if (link && plain) { event.preventDefault(); return preview(link.href, link) }
    if (target.closest?.('.veil, #drawer-close') && plain && history.state?.drawer) { event.preventDefault(); shut() }
  });
  addEventListener('change', event => {
    if (event.target.matches('[data-all]')) choose(event.target.checked);
    else if (event.target.matches('input[name=job]')) count();
  });
  addEventListener('submit', event => {
    const form = event.target, button = event.submitter;
    if (form.id === 'preferences' && button) { event.preventDefault(); return prefer(button.name, button.value) }
    if (form.method === 'get' && button?.name === 'preview') {
      event.preventDefault();
      return preview(`${form.action.split('?')[0]}?${new URLSearchParams(new FormData(form, button))}`, button);
    }
    if (form.method !== 'post') return;
    // Pressed twice is posted once.
    if (form.dataset.sent) return event.preventDefault();
    form.dataset.sent = '1';
    button?.setAttribute('aria-disabled', 'true');
  });

  // ---- Charts: the values under the pointer.
  const shownAs = { rate: v => v >= 10 ? `${Math.round(v).toLocaleString('en')}/s` : `${+v.toFixed(v < 1 ? 2 : 1)}/s`, count: v => v.toLocaleString('en'), span, percent: v => `${+v.toFixed(2)} %` };
  const read = event => {
    const plot = event.target.closest?.('.plot'), chart = plot?.closest('[data-points]');
    if (!chart) return all('.cross').forEach(unread);
    const { from, step, unit, series } = JSON.parse(chart.dataset.points), box = plot.getBoundingClientRect();
    const steps = Math.max(...series.map(([, values]) => values.length)), at = Math.min(steps - 1, Math.max(0, Math.floor((event.clientX - box.left) / box.width * steps)));
    let cross = one('.cross', plot);
    if (!cross) {
      cross = document.createElementNS('http://www.w3.org/2000/svg', 'line');
      cross.setAttribute('class', 'cross');
      cross.setAttribute('y2', plot.getAttribute('height') - 24);
      plot.append(cross);
    }
    for (const side of ['x1', 'x2']) cross.setAttribute(side, `${(at + .5) / steps * 100}%`);
    const values = series.filter(([, list]) => list[at] != null).map(([name, list]) => `${name} ${shownAs[unit](list[at])}`);
    show(one('.readout', chart), `${written(Date.parse(from) + at * step * 1000, step < 60 ? 'hms' : step < 86400 ? 'hm' : 'day')} · ${values.join(' · ') || 'nothing'}`);
  };
  const unread = cross => { const chart = cross.closest('[data-points]'); cross.remove(); show(one('.readout', chart), '') };
  addEventListener('pointermove', read, { passive: true });

  // ---- Begin.
  addEventListener('visibilitychange', () => document.hidden ? stop() : (times(), start()));
  addEventListener('pagehide', stop);
  addEventListener('pageshow', event => { if (event.persisted) { all('form[data-sent]').forEach(form => delete form.dataset.sent); start() } });
  setInterval(() => { if (!document.hidden) { tick(document); flush(); state() } }, 1000);
  const field = one('.find input');
  field?.addEventListener('click', () => search(field.value));
  field?.addEventListener('input', () => { const text = field.value; field.value = ''; search(text) });
  by('live')?.addEventListener('click', pause);
  by('help')?.addEventListener('click', help);
  if (by('live')) by('live').hidden = false;
  times();
  done();
  reopen(document);
  count();
  if (by('drawer')) enter(by('drawer'));
  start();
})();
