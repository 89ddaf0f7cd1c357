// Measures the contrast of every text that is seen on its ground, within `scope`. Returns those below the ratio `arguments[1]`, each sort once.
// The ground of a text is what is painted under its middle: grounds of elements, the shapes of drawings, and the halo of a text in a drawing.
const [scope, least] = arguments;

const parsed = text => {
  const numbers = text.match(/-?[\d.]+(e-?\d+)?%?/g)?.map(part => part.endsWith('%') ? parseFloat(part) / 100 : parseFloat(part)) || [];
  if (text.startsWith('rgb')) return [numbers[0], numbers[1], numbers[2], numbers[3] ?? 1];
  if (text.startsWith('color(srgb')) return [numbers[0] * 255, numbers[1] * 255, numbers[2] * 255, numbers[3] ?? 1];
  if (text === 'transparent' || text === 'none') return [0, 0, 0, 0];
  throw new Error(`a colour that is not known: ${text}`);
};
const over = (above, below) => [0, 1, 2].map(part => above[part] * above[3] + below[part] * (1 - above[3])).concat(1);
const brightness = ([r, g, b]) => {
  const [x, y, z] = [r, g, b].map(part => part / 255).map(part => part <= .04045 ? part / 12.92 : ((part + .055) / 1.055) ** 2.4);
  return .2126 * x + .7152 * y + .0722 * z;
};
const ratio = (a, b) => {
  const [light, dark] = [brightness(a), brightness(b)].sort((x, y) => y - x);
  return (light + .05) / (dark + .05);
};
const faded = (colour, by) => [colour[0], colour[1], colour[2], colour[3] * by];
const SHAPES = ['rect', 'path', 'circle', 'ellipse', 'polygon'];

// What an element paints below its content: several colours if it is a gradient.
const grounds = element => {
  const style = getComputedStyle(element);
  if (element instanceof SVGElement && element.tagName !== 'svg') {
    const opacity = parseFloat(style.fillOpacity) * parseFloat(style.opacity);
    return [SHAPES.includes(element.tagName) && !style.fill.startsWith('url') ? faded(parsed(style.fill), opacity) : [0, 0, 0, 0]];
  }
  const plain = parsed(style.backgroundColor);
  const stops = style.backgroundImage.includes('gradient') && style.backgroundSize === 'auto' ? style.backgroundImage.match(/(rgba?|color)\([^()]*\)/g) || [] : [];
  return stops.length ? stops.map(parsed).map(stop => stop[3] === 1 ? stop : over(stop, plain[3] ? plain : [128, 128, 128, 1])) : [plain];
};

// The colours that may be under a point of an element.
const below = (element, x, y) => {
  const stack = document.elementsFromPoint(x, y), at = stack.indexOf(element);
  const layers = at >= 0 ? stack.slice(at) : [];
  if (at < 0) for (let up = element; up; up = up.parentElement) layers.push(up);
  let possible = [[0, 0, 0, 0]];
  const isOpaque = colour => colour[3] >= .999;
  const under = (upper, lower) => {
    const alpha = upper[3] + lower[3] * (1 - upper[3]);
    if (!alpha) return [0, 0, 0, 0];
    return [0, 1, 2].map(part => (upper[part] * upper[3] + lower[part] * lower[3] * (1 - upper[3])) / alpha).concat(alpha);
  };
  for (const layer of layers) {
    possible = possible.flatMap(upper => isOpaque(upper) ? [upper] : grounds(layer).map(lower => under(upper, lower)));
    if (possible.every(isOpaque)) return possible;
  }
  const canvas = matchMedia('(prefers-color-scheme: dark)').matches ? [18, 18, 18, 1] : [255, 255, 255, 1];
  return possible.map(upper => over(upper, canvas));
};

const opacityOf = element => {
  let opacity = 1;
  for (let up = element; up; up = up.parentElement) opacity *= parseFloat(getComputedStyle(up).opacity);
  return opacity;
};
const isSeen = (element, box) => box.width > 1 && box.height > 1 && getComputedStyle(element).visibility === 'visible'
  && !element.closest('[disabled], [aria-disabled=true], .gone, .sr, .sprite, option, datalist');
// Something lies over it: a drawer, a menu, the bar at the bottom.
const isCovered = (element, x, y) => {
  const top = document.elementFromPoint(x, y);
  return top && top !== element && !element.contains(top) && !top.contains(element) && top.closest('.veil, #drawer, dialog, .sheet, .tabbar, .topbar, .toasts, .bulk') && !top.closest('.veil, #drawer, dialog, .sheet, .tabbar, .topbar, .toasts, .bulk').contains(element);
};

// The part of a text in a drawing that is seen: a drawing within a drawing cuts what stands in it.
const drawn = element => {
  if (getComputedStyle(element.ownerSVGElement).overflow === 'visible') return element.getBoundingClientRect();
  const box = element.getBoundingClientRect(), svg = element.ownerSVGElement, matrix = svg.getScreenCTM();
  const frame = new DOMRect(matrix.e, matrix.f, svg.width.baseVal.value * matrix.a, svg.height.baseVal.value * matrix.d);
  const x = Math.max(box.left, frame.left), y = Math.max(box.top, frame.top);
  return new DOMRect(x, y, Math.max(0, Math.min(box.right, frame.right) - x), Math.max(0, Math.min(box.bottom, frame.bottom) - y));
};

const found = new Map();
const measure = (element, box, colour, text, halo) => {
  if (!isSeen(element, box)) return;
  const x = box.x + box.width / 2, y = box.y + box.height / 2, opacity = opacityOf(element);
  if (opacity < .02 || isCovered(element, x, y)) return;
  for (const ground of halo ? [halo] : below(element, x, y)) {
    const value = ratio(over(faded(colour, opacity), ground), ground);
    if (value >= least) continue;
    const name = `${element.tagName.toLowerCase()}.${element.getAttribute('class') || ''} in ${element.parentElement?.tagName.toLowerCase()}.${element.parentElement?.getAttribute('class') || ''}`;
    const hex = parts => `#${parts.slice(0, 3).map(part => Math.round(part).toString(16).padStart(2, '0')).join('')}`;
    const key = `${name} ${hex(colour)} on ${hex(ground)}`;
    if (!found.has(key)) found.set(key, `${value.toFixed(2)}: ${key}: “${text.trim().slice(0, 40)}”`);
  }
};

let measured = 0;
for (const root of document.querySelectorAll(scope)) {
  const walker = document.createTreeWalker(root, NodeFilter.SHOW_TEXT);
  for (let node; node = walker.nextNode();) {
    const element = node.parentElement;
    if (!node.data.trim() || ['SCRIPT', 'STYLE', 'TITLE', 'TEXTAREA', 'OPTION', 'desc', 'title'].includes(element.tagName)) continue;
    const range = document.createRange();
    range.selectNodeContents(node);
    const style = getComputedStyle(element), isDrawn = element instanceof SVGElement;
    const hasHalo = isDrawn && style.paintOrder.startsWith('stroke') && parseFloat(style.strokeWidth) >= 3;
    measured++;
    measure(element, isDrawn ? drawn(element) : range.getClientRects()[0] || range.getBoundingClientRect(),
      parsed(isDrawn ? style.fill : style.color), node.data, hasHalo && parsed(style.stroke));
  }
  for (const field of root.querySelectorAll('input:not([type=hidden], [type=checkbox], [type=radio]), textarea, select')) {
    const pseudo = !field.value && field.placeholder ? '::placeholder' : null;
    measure(field, field.getBoundingClientRect(), parsed(getComputedStyle(field, pseudo).color), field.value || field.placeholder || '');
  }
  for (const element of root.querySelectorAll('*')) {
    for (const pseudo of ['::before', '::after']) {
      const style = getComputedStyle(element, pseudo);
      if (/^"."|^"[^"]{2,}/.test(style.content)) measure(element, element.getBoundingClientRect(), parsed(style.color), style.content);
    }
  }
}
return { measured, found: [...found.values()] };
