// Charts: one of a rule over the last minutes (uPlot), and sparklines in rows (SVG).

/* global uPlot */

const SVG = 'http://www.w3.org/2000/svg';
/** Span of a chart in seconds: the service keeps as much. */
export const SPAN_S = 900;
/** Span of a sparkline in seconds. */
const SPARK_S = 120;

/** Samples of one rule: times in seconds, and rates. */
export class History {
  constructor() {
    this.at = [];
    this.allowed = [];
    this.denied = [];
  }

  add(at, allowed, denied) {
    this.at.push(at);
    this.allowed.push(allowed);
    this.denied.push(denied);
    this.expire(at);
  }

  /** Puts the steps of the service, oldest first, before the samples of this page. */
  fill(now, steps) {
    const begin = this.at[0] ?? Infinity;
    const before = steps.map((step) => ({ ...step, at: now - step.seconds_ago })).filter((step) => step.at < begin);
    this.at.unshift(...before.map((step) => step.at));
    this.allowed.unshift(...before.map((step) => step.allowed));
    this.denied.unshift(...before.map((step) => step.denied));
    this.expire(now);
  }

  expire(now) {
    while (this.at[0] < now - SPAN_S) {
      for (const list of [this.at, this.allowed, this.denied]) list.shift();
    }
  }
}

const dark = matchMedia('(prefers-color-scheme: dark)');

/** A chart in `place` that follows its width and the colours of the page. Returns `draw(history)`. */
export function chart(place, signal) {
  let plot = null;
  let last = null;
  const make = () => {
    plot?.destroy();
    const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
    const axis = { stroke: colour('--soft'), grid: { stroke: colour('--line'), width: 1 }, ticks: { show: false }, font: '12px system-ui, sans-serif' };
    const line = (label, name, fill) => ({ label, stroke: colour(name), fill: fill && colour(fill), width: 1.75, points: { show: false } });
    const options = {
      width: Math.max(place.clientWidth, 200),
      height: 180,
      legend: { show: false },
      cursor: { show: false },
      padding: [8, 8, 0, 0],
      scales: { x: { range: () => [last.now - SPAN_S, last.now] }, y: { range: (_, _min, max) => [0, max > 0 ? max * 1.1 : 1] } },
      axes: [
        { ...axis, size: 28, space: 60, values: (_, splits) => splits.map((at) => `${Math.round((last.now - at) / 60)} min`), splits: () => ago(last.now, place.clientWidth) },
        { ...axis, size: 48 },
      ],
      series: [{}, line('allowed', '--good'), line('denied', '--bad', '--bad-fill')],
    };
    plot = new uPlot(options, data(), place);
  };
  const data = () => [last.history.at, last.history.allowed, last.history.denied];
  const draw = (history) => {
    last = { history, now: history.at.at(-1) ?? Date.now() / 1000 };
    if (plot) plot.setData(data());
    else make();
  };
  const watcher = new ResizeObserver(() => plot?.setSize({ width: Math.max(place.clientWidth, 200), height: 180 }));
  watcher.observe(place);
  dark.addEventListener('change', () => plot && make(), { signal });
  signal.addEventListener('abort', () => {
    watcher.disconnect();
    plot?.destroy();
  });
  return draw;
}

function ago(now, width) {
  const step = width < 420 ? 300 : 180;
  return Array.from({ length: SPAN_S / step + 1 }, (_, place) => now - SPAN_S + place * step);
}

/** A sparkline of rates, hidden from screen readers: the numbers are next to it. */
export function spark() {
  const element = document.createElementNS(SVG, 'svg');
  const size = { viewBox: '0 0 100 24', preserveAspectRatio: 'none', class: 'spark', 'aria-hidden': 'true' };
  for (const [name, value] of Object.entries(size)) element.setAttribute(name, value);
  const lines = ['allowed', 'denied'].map((name) => {
    const line = document.createElementNS(SVG, 'polyline');
    line.setAttribute('class', name);
    element.append(line);
    return [name, line];
  });
  const draw = (history) => {
    const now = history.at.at(-1) ?? 0;
    const first = Math.max(history.at.findIndex((at) => at >= now - SPARK_S), 0);
    const shown = { allowed: history.allowed.slice(first), denied: history.denied.slice(first) };
    const top = Math.max(...shown.allowed, ...shown.denied, 1e-9);
    for (const [name, line] of lines) {
      const points = shown[name].map((value, place) => {
        const x = 100 - ((now - history.at[first + place]) / SPARK_S) * 100;
        return `${x.toFixed(1)},${(23 - (value / top) * 22).toFixed(1)}`;
      });
      line.setAttribute('points', points.join(' '));
    }
  };
  return { element, draw };
}

/** The share of denials as a bar, hidden from screen readers. */
export function share() {
  const fill = document.createElement('span');
  const element = document.createElement('span');
  element.className = 'share';
  element.setAttribute('aria-hidden', 'true');
  element.append(fill);
  const draw = (allowed, denied) => {
    const all = allowed + denied;
    element.classList.toggle('idle', all === 0);
    fill.hidden = denied === 0;
    fill.style.inlineSize = `${all > 0 ? (denied / all) * 100 : 0}%`;
  };
  return { element, draw };
}
