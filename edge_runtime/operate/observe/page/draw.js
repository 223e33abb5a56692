// Drawings of the page, as SVG made by hand. Every text goes in as text, never as markup.
"use strict";

const SVG = "http://www.w3.org/2000/svg";

function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key === "class") made.className = value;
    else made.setAttribute(key, value);
  }
  made.append(...children);
  return made;
}

function shape(name, attributes = {}, text = null) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text !== null) made.textContent = text;
  return made;
}

// A picture in pixels of its place, so that its text is as large as other text; `says` is for those who do not see it.
function picture(width, height, says) {
  const made = shape("svg", {viewBox: `0 0 ${width} ${height}`, height, preserveAspectRatio: "none"});
  if (!says) made.setAttribute("aria-hidden", "true");
  else {
    made.setAttribute("role", "img");
    made.setAttribute("aria-label", says);
  }
  return made;
}

function polyline(values, width, height, low, high) {
  const span = high - low || 1;
  const step = width / Math.max(1, values.length - 1);
  return values.map((value, at) => `${(at * step).toFixed(1)},${(height - ((value - low) / span) * height).toFixed(1)}`).join(" ");
}

// A label's colour, the same all over the page.
function hue(labels, label) {
  const at = labels.indexOf(label);
  return at < 0 ? "plain" : `f${at % 8}`;
}

// Answers as bars: height is confidence, pale is unsure, a dot is what the cloud said instead.
function bars(svg, steps, labels, {width, height, top, most}) {
  const bar = width / most;
  steps.slice(-most).forEach(([label, confidence, hard, corrected], at, shown) => {
    const tall = Math.max(2, Math.min(1, Math.max(0, confidence)) * (height - top));
    const x = width - (shown.length - at) * bar;
    const colour = hue(labels, label);
    const one = shape("rect", {x: x + bar * 0.1, y: height - tall, width: bar * 0.8, height: tall, class: hard ? `${colour} pale` : colour});
    const more = corrected ? `, the cloud says ${corrected}` : hard ? ", unsure" : "";
    one.append(shape("title", {}, `${label || "(none)"} ${percent(confidence)}${more}`));
    svg.append(one);
    if (corrected && corrected !== label) {
      svg.append(shape("ellipse", {cx: x + bar / 2, cy: height - tall - 4, rx: Math.min(4, bar * 0.45), ry: 3.5, class: `${hue(labels, corrected)} corrected`}));
    }
  });
}

function cardBars(history, labels) {
  const svg = picture(240, 36, "");
  bars(svg, history, labels, {width: 240, height: 36, top: 8, most: 40});
  return svg;
}

// The last answers of a key with their scale.
function answerBars(steps, labels, width) {
  const svg = picture(width, 150, `The last ${steps.length} answers: confidence over time`);
  for (const share of [0, 0.5, 1]) {
    const y = 124 - share * 112;
    svg.append(shape("line", {x1: 0, x2: width, y1: y, y2: y, class: "axis"}));
  }
  bars(svg, steps.map((step) => step.slice(1)), labels, {width: width - 40, height: 124, top: 12, most: 60});
  for (const share of [0, 0.5, 1]) svg.append(shape("text", {x: width, y: 124 - share * 112 + 4, "text-anchor": "end"}, percent(share)));
  if (steps.length) {
    const first = (width - 40) * (1 - Math.min(60, steps.length) / 60);
    svg.append(shape("text", {x: Math.min(first, width - 150), y: 144}, clock(steps[0][0])));
    svg.append(shape("text", {x: width - 40, y: 144, "text-anchor": "end"}, clock(steps[steps.length - 1][0])));
  }
  return svg;
}

// A window: a curve for each channel, each in its own scale, and behind it what moved the answer.
function windowCurves(drawn, why, width) {
  const lane = drawn.values.length > 8 ? 44 : 60;
  const high = lane * drawn.values.length;
  const svg = picture(width, high + 22, `The window, ${drawn.values.length} channels over ${short(drawn.length / drawn.rate_hz)} s`);
  const most = why ? Math.max(...Object.values(why.cells).flat().map(Math.abs), 1e-9) : 1;
  drawn.values.forEach((values, at) => {
    const channel = drawn.channels[at] || {name: `channel ${at + 1}`, unit: ""};
    const top = at * lane;
    if (why) effects(svg, why, why.cells[channel.name] || [], {width, top, lane, most, length: drawn.length});
    const [low, up] = [Math.min(...values), Math.max(...values)];
    const group = shape("g", {transform: `translate(0 ${top + 18})`});
    group.append(shape("polyline", {points: polyline(values, width, lane - 24, low, up), class: `curve c${at % 8}`}));
    const unit = channel.unit === "1" ? "" : ` ${channel.unit}`;
    svg.append(group, shape("line", {x1: 0, x2: width, y1: top + lane, y2: top + lane, class: "axis"}));
    svg.append(shape("text", {x: 2, y: top + 13, class: "ink"}, channel.name));
    svg.append(shape("text", {x: width - 2, y: top + 13, "text-anchor": "end"}, `${short(low)} to ${short(up)}${unit}`));
  });
  svg.append(shape("text", {x: 2, y: high + 17}, "0 s"));
  svg.append(shape("text", {x: width - 2, y: high + 17, "text-anchor": "end"}, `${short(drawn.length / drawn.rate_hz)} s`));
  return svg;
}

function effects(svg, why, cells, {width, top, lane, most, length}) {
  cells.forEach((effect, part) => {
    const begin = (why.bounds[part] / length) * width;
    const end = (why.bounds[part + 1] / length) * width;
    const opacity = (0.55 * Math.abs(effect)) / most;
    if (opacity < 0.02) return;
    svg.append(shape("rect", {x: begin, y: top + 1, width: end - begin, height: lane - 2, class: effect >= 0 ? "for" : "against", "fill-opacity": opacity}));
  });
}

// Events on a line of time, a lane for each rule and key.
function timeline(spans, labels, now, width) {
  const lanes = new Map();
  for (const one of spans) {
    const name = `${one.event} · ${one.key}`;
    lanes.set(name, [...(lanes.get(name) || []), one]);
  }
  const shown = [...lanes].slice(-8);
  if (!shown.length) return null;
  const begin = Math.max(Math.min(now - 60, ...shown.flatMap(([, all]) => all.map((one) => one.start))), now - 600);
  const svg = picture(width, shown.length * 34 + 20, `Events of ${shown.length} rules and keys`);
  const place = (t) => ((Math.min(Math.max(t, begin), now) - begin) / Math.max(1, now - begin)) * width;
  shown.forEach(([name, all], at) => {
    const top = at * 34;
    svg.append(shape("text", {x: 0, y: top + 12, class: "ink"}, cut(name, width / 7)));
    svg.append(shape("line", {x1: 0, x2: width, y1: top + 24, y2: top + 24, class: "axis"}));
    for (const one of all) {
      const from = Math.min(place(one.start), width - 4);
      const bar = shape("rect", {x: from, y: top + 18, width: Math.max(4, place(one.end || now) - from), height: 12, rx: 3, class: hue(labels, one.label)});
      bar.append(shape("title", {}, `${name}: ${one.end ? duration(one.end - one.start) : "still on"}`));
      svg.append(bar);
    }
  });
  svg.append(shape("text", {x: 0, y: shown.length * 34 + 15}, clock(begin)));
  svg.append(shape("text", {x: width, y: shown.length * 34 + 15, "text-anchor": "end"}, clock(now)));
  return svg;
}

function trend(values) {
  const svg = picture(200, 26, "");
  svg.append(shape("polyline", {points: polyline(values, 200, 24, 0, Math.max(...values, 1e-9)), class: "trend"}));
  return svg;
}

function meter(name, share, colour, says) {
  const svg = picture(100, 12, "");
  svg.append(shape("rect", {x: 0, y: 0, width: Math.max(0, Math.min(1, share)) * 100, height: 12, class: colour}));
  return element("div", {class: "meter"}, element("span", {title: name}, name), svg, element("span", {}, says));
}

// Shares of a whole, side by side.
function shares(parts, says) {
  const whole = parts.reduce((sum, [value]) => sum + value, 0) || 1;
  const svg = picture(1000, 14, says);
  let x = 0;
  for (const [value, kind] of parts) {
    svg.append(shape("rect", {x, y: 0, width: (1000 * value) / whole, height: 14, class: kind}));
    x += (1000 * value) / whole;
  }
  return svg;
}

// Median and 99 of 100 of a stage, on a scale where each step is ten times the one before: 10 µs to 10 s.
function stageBar(one) {
  const svg = picture(120, 16, "");
  const place = (ms) => Math.max(0, Math.min(120, (Math.log10(Math.max(ms, 0.01)) + 2) * 20));
  for (let step = 1; step < 6; step++) svg.append(shape("line", {x1: step * 20, x2: step * 20, y1: 0, y2: 16, class: "axis"}));
  svg.append(shape("line", {x1: 0, x2: place(one.p99), y1: 8, y2: 8, class: "span"}));
  svg.append(shape("rect", {x: 0, y: 4, width: place(one.p50), height: 8, class: "half"}));
  return svg;
}

// A share of what begins an alarm, up to one and a half times that; the line is the bound.
function boundBar(share, over) {
  const svg = picture(150, 14, "");
  svg.append(shape("rect", {x: 0, y: 3, width: 150, height: 8, class: "rest"}));
  svg.append(shape("rect", {x: 0, y: 3, width: Math.min(150, 100 * share), height: 8, class: over ? "against" : "half"}));
  svg.append(shape("line", {x1: 100, x2: 100, y1: 0, y2: 14, class: "bound"}));
  return svg;
}

function cut(text, most) {
  return text.length > most ? `${text.slice(0, Math.max(1, Math.floor(most) - 1))}…` : text;
}

function percent(share) {
  return `${(100 * share).toFixed(share > 0 && share < 0.1 ? 1 : 0)} %`;
}

function short(value) {
  if (Math.abs(value) >= 1000) return Math.round(value).toLocaleString("en");
  return String(Number(Number(value).toPrecision(3)));
}

function clock(stamp) {
  return stamp > 1e8 ? new Date(1000 * stamp).toLocaleTimeString("en-GB") : `${short(stamp)} s`;
}

function moment(stamp) {
  return new Date(1000 * stamp).toLocaleString("en-GB", {dateStyle: "medium", timeStyle: "short"});
}

function duration(seconds) {
  if (seconds < 10) return `${seconds.toFixed(1)} s`;
  if (seconds < 60) return `${Math.round(seconds)} s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min`;
  if (seconds < 86400) return `${Math.floor(seconds / 3600)} h ${Math.floor((seconds % 3600) / 60)} min`;
  return `${Math.floor(seconds / 86400)} d ${Math.floor((seconds % 86400) / 3600)} h`;
}

function bytes(count) {
  return count < 1e6 ? `${Math.round(count / 1e3)} kB` : `${(count / 1e6).toFixed(0)} MB`;
}
