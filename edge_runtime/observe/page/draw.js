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

// A picture with a text for those who do not see it.
function picture(width, height, says) {
  return shape("svg", {viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": says, preserveAspectRatio: "none"});
}

function polyline(values, width, height, low, high) {
  const span = high - low || 1;
  const step = width / Math.max(1, values.length - 1);
  return values.map((value, at) => `${(at * step).toFixed(1)},${(height - ((value - low) / span) * height).toFixed(1)}`).join(" ");
}

// The last confidences of a key, 0 to 1.
function sparkline(history) {
  const svg = picture(112, 26, `last ${history.length} confidences`);
  const values = history.map((step) => step[1]);
  if (values.length > 1) {
    svg.append(shape("polyline", {points: polyline(values, 112, 24, 0, 1), class: "curve c0"}));
  }
  return svg;
}

// A window: a curve for each channel, each in its own scale, and what moved the answer behind it.
function windowCurves(detail, why) {
  const channels = detail.window.values;
  const lane = 54;
  const width = 640;
  const seconds = detail.window.length / detail.window.rate_hz;
  const svg = picture(width, lane * channels.length + 20, `last window of ${detail.key}, ${channels.length} channels`);
  channels.forEach((values, at) => {
    const name = detail.channels[at] ? detail.channels[at].name : `channel ${at + 1}`;
    const top = at * lane;
    const low = Math.min(...values);
    const high = Math.max(...values);
    if (why && why.cells[name]) {
      const most = Math.max(...Object.values(why.cells).flat().map(Math.abs), 1e-9);
      why.cells[name].forEach((effect, part) => {
        const begin = (why.bounds[part] / detail.window.length) * width;
        const end = (why.bounds[part + 1] / detail.window.length) * width;
        svg.append(shape("rect", {
          x: begin, y: top + 2, width: end - begin, height: lane - 6, class: effect >= 0 ? "for" : "against",
          "fill-opacity": (0.6 * Math.abs(effect)) / most,
        }));
      });
    }
    const group = shape("g", {transform: `translate(0 ${top + 4})`});
    group.append(shape("polyline", {points: polyline(values, width, lane - 12, low, high), class: `curve c${at % 8}`}));
    svg.append(group, shape("text", {x: 4, y: top + 14}, `${name}  ${short(low)} to ${short(high)} ${unit(detail, at)}`));
  });
  svg.append(shape("text", {x: 2, y: lane * channels.length + 15}, "0 s"));
  svg.append(shape("text", {x: width - 2, y: lane * channels.length + 15, "text-anchor": "end"}, `${short(seconds)} s`));
  return svg;
}

function unit(detail, at) {
  const found = detail.channels[at] ? detail.channels[at].unit : "";
  return found === "1" ? "" : found;
}

// The last answers of a key: a bar each, coloured by label.
function answerBars(steps, labels) {
  const width = 640;
  const height = 110;
  const svg = picture(width, height, `the last ${steps.length} answers`);
  const bar = width / 60;
  steps.forEach((step, at) => {
    const [, label, confidence, hard, corrected] = step;
    const tall = Math.max(2, Math.min(1, Math.max(0, confidence)) * (height - 16));
    const x = width - (steps.length - at) * bar;
    const colour = `f${labels.indexOf(label) % 8}`;
    const one = shape("rect", {x: x + 1, y: height - tall, width: bar - 2, height: tall, class: hard ? `${colour} hollow` : colour});
    one.append(shape("title", {}, `${label || "(none)"} ${percent(confidence)}${corrected ? `, corrected to ${corrected}` : hard ? ", unsure" : ""}`));
    svg.append(one);
    if (corrected) svg.append(shape("circle", {cx: x + bar / 2, cy: height - tall - 7, r: 4, class: "ring"}));
  });
  return svg;
}

// Events on a line of time: the last ten minutes before `now`.
function timeline(events, now) {
  const spans = new Map();
  for (const event of events) {
    const known = spans.get(event.id) || {};
    spans.set(event.id, {...known, ...event, end: event.end || known.end});
  }
  const shown = [...spans.values()].slice(-8);
  if (!shown.length) return null;
  const begin = Math.min(now - 60, ...shown.map((one) => one.start));
  const width = 640;
  const svg = picture(width, shown.length * 22 + 20, `${shown.length} events`);
  const place = (t) => ((Math.min(t, now) - begin) / Math.max(1, now - begin)) * width;
  shown.forEach((one, at) => {
    const from = place(one.start);
    const to = Math.max(from + 4, place(one.end || now));
    svg.append(shape("rect", {x: from, y: at * 22 + 4, width: to - from, height: 14, rx: 3, class: `f${at % 8} ${one.end ? "" : "hollow"}`}));
    const right = from > width / 2;
    svg.append(shape("text", {x: right ? from - 4 : to + 4, y: at * 22 + 15, "text-anchor": right ? "end" : "start"}, `${one.event} ${one.key}`));
  });
  svg.append(shape("text", {x: 0, y: shown.length * 22 + 15}, clock(begin)));
  svg.append(shape("text", {x: width, y: shown.length * 22 + 15, "text-anchor": "end"}, clock(now)));
  return svg;
}

function trend(title, values, format) {
  const svg = picture(320, 44, `${title}: now ${format(values[values.length - 1])}`);
  const high = Math.max(...values, 1e-9);
  svg.append(shape("polyline", {points: polyline(values, 320, 40, 0, high), class: "curve c0"}));
  return element("figure", {}, element("figcaption", {}, `${title}: ${format(values[values.length - 1])} (at most ${format(high)})`), svg);
}

function meter(label, value, place) {
  const svg = picture(100, 10, "");
  svg.setAttribute("aria-hidden", "true");
  svg.append(shape("rect", {x: 0, y: 0, width: Math.max(0, Math.min(1, value)) * 100, height: 10, class: `f${place % 8}`}));
  return element("div", {class: "meter"}, element("span", {}, label), svg, element("span", {}, percent(value)));
}

function percent(share) {
  return `${(100 * share).toFixed(share > 0 && share < 0.1 ? 1 : 0)} %`;
}

function short(value) {
  return Number(value).toPrecision(3).replace(/\.?0+$/, "").replace(/\.?0+e/, "e");
}

function clock(stamp) {
  return stamp > 1e8 ? new Date(1000 * stamp).toLocaleTimeString() : `${short(stamp)} s`;
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
