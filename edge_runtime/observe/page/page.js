// The page of a running application: follows its stream of pictures, and asks for one key at a time.
"use strict";

const byId = (id) => document.getElementById(id);
const TREND = 240; // pictures that trends remember: two minutes

const page = {report: null, paused: false, key: "", detail: null, why: null, stream: null, trends: [], asking: false, said: ""};

function say(text, kind) {
  const state = byId("state");
  if (page.said === text) return; // a screen reader hears a change alone
  page.said = text;
  state.textContent = text;
  state.className = kind;
}

function follow() {
  if (page.stream) page.stream.close();
  page.stream = new EventSource(`/api/stream?keys=100&filter=${encodeURIComponent(byId("filter").value)}`);
  page.stream.onmessage = (message) => {
    const report = JSON.parse(message.data);
    remember(report);
    if (page.paused) return;
    page.report = report;
    show();
    if (page.key) look();
  };
  page.stream.onerror = () => say("no connection; trying again", "bad");
}

function remember(report) {
  page.trends.push({
    answers: report.rates.predictions_per_s, hard: report.rates.hard_share, cloud: report.rates.cloud_share,
    p99: report.latency_ms.total.p99,
  });
  if (page.trends.length > TREND) page.trends.shift();
}

async function ask(path, document) {
  const options = document ? {method: "POST", headers: {"Content-Type": "application/json"}, body: JSON.stringify(document)} : {};
  const answer = await fetch(path, options);
  const found = await answer.json();
  if (!answer.ok) throw new Error(found.error || answer.statusText);
  return found;
}

async function look() {
  if (page.asking || !page.key) return;
  page.asking = true;
  try {
    page.detail = await ask(`/api/key?key=${encodeURIComponent(page.key)}`);
    showDetail();
  } catch (error) {
    byId("answer").textContent = error.message;
  } finally {
    page.asking = false;
  }
}

async function explain() {
  try {
    page.why = await ask("/api/explain", {key: page.key});
    byId("why").textContent = whyInWords(page.why);
    await look();
  } catch (error) {
    byId("why").textContent = error.message;
  }
}

function whyInWords(why) {
  const effects = Object.entries(why.channels).sort((a, b) => Math.abs(b[1]) - Math.abs(a[1])).slice(0, 3);
  const parts = effects.map(([name, effect]) => `${name} ${effect >= 0 ? "for" : "against"} it (${effect >= 0 ? "+" : ""}${effect.toFixed(2)})`);
  return `What moved ${why.label ? `“${why.label}”` : "this answer"}: ${parts.join(", ")}. Green spans speak for it, red ones against it.`;
}

// -- drawing ----------------------------------------------------------------------------------------------------------

function show() {
  const {app, backend} = page.report;
  byId("model").textContent = app.model;
  document.title = `${app.model} · edge-runtime`;
  byId("about").textContent = `${backend.backend || backend.variant} · up ${duration(app.uptime_s)} · runtime ${app.version}`;
  showTrouble();
  showFigures();
  showKeys();
  showEvents();
  showCorrections();
  showDrops();
  showLatency();
  showTrends();
  showBundle();
}

function troubles(report) {
  const found = [];
  for (const [name, connected] of Object.entries(report.brokers)) if (!connected) found.push(`broker ${name} is not connected`);
  for (const [name, reason] of Object.entries(report.backend.failed || {})) found.push(`${name} does not work: ${reason}`);
  if (report.backend.backend === "none") found.push("nothing on this device answers");
  if (report.cloud.reachable === 0) found.push("the cloud is not reachable; hard cases wait in the outbox");
  if (report.gauges.outbox_accepting === 0) found.push("the outbox takes no cases: look at its disk");
  if (report.outbox && report.outbox.dead) found.push(`${report.outbox.dead} dead letters: edge-runtime outbox list`);
  if (report.governor && report.governor.level) found.push(`stepped down ${report.governor.level} times: ${report.governor.reason}`);
  for (const one of report.keys) if (one.suspect) found.push(`readings of ${one.key} are suspect: ${one.suspect}`);
  return found;
}

function showTrouble() {
  const found = troubles(page.report);
  byId("trouble").replaceChildren(...found.map((text) => element("li", {}, text)));
  if (page.paused) say("paused", "warn");
  else if (found.length) say(found.length === 1 ? "1 thing needs you" : `${found.length} things need you`, "bad");
  else if (page.report.rates.messages_per_s === 0) say("no messages in the last 10 s", "warn");
  else say("well", "good");
}

function figure(name, value) {
  return element("div", {}, element("dt", {}, name), element("dd", {}, value));
}

function showFigures() {
  const {rates, outbox, board, process, drops, keys_found: keys} = page.report;
  const dropped = drops.reduce((sum, one) => sum + one.count, 0);
  const figures = [
    figure("messages a second", short(rates.messages_per_s)), figure("answers a second", short(rates.predictions_per_s)),
    figure("keys", String(keys)), figure("unsure", percent(rates.hard_share)), figure("sent to the cloud", percent(rates.cloud_share)),
    figure("not used", String(dropped)),
  ];
  if (outbox) figures.push(figure("waiting in the outbox", String(outbox.queued)));
  if (board.temperature_c !== undefined) figures.push(figure("temperature", `${Math.round(board.temperature_c)} °C`));
  if (board.power_w !== undefined) figures.push(figure("power", `${short(board.power_w)} W`));
  if (process.resident_bytes) figures.push(figure("memory", bytes(process.resident_bytes)));
  byId("figures").replaceChildren(...figures);
}

// Keys keep their element from picture to picture: whoever stands on one with the keyboard stays there.
function showKeys() {
  const list = byId("keys");
  const known = new Map([...list.children].map((item) => [item.dataset.key, item]));
  const wanted = page.report.keys.map((one) => {
    const item = known.get(one.key) || keyItem(one.key);
    fillKey(item.firstChild, one);
    return item;
  });
  if (wanted.length !== list.children.length || wanted.some((item, at) => list.children[at] !== item)) list.replaceChildren(...wanted);
  const hidden = page.report.keys_found - page.report.keys.length;
  byId("more").textContent = hidden > 0 ? `and ${hidden} more; the filter finds them` : page.report.keys_found ? "" : "No key has answered yet.";
}

function keyItem(key) {
  const button = element("button", {type: "button", "aria-expanded": "false"});
  button.append(
    element("span", {class: "name"}), element("span", {class: "spark"}), element("span", {class: "label"}),
    element("span", {class: "soft"}), element("span", {class: "note"}),
  );
  button.addEventListener("click", () => choose(page.key === key ? "" : key));
  const item = element("li", {}, button);
  item.dataset.key = key;
  return item;
}

function fillKey(button, one) {
  const [name, spark, label, certainty, note] = button.children;
  name.textContent = one.key;
  spark.replaceChildren(sparkline(one.history));
  label.textContent = one.label || "(none)";
  certainty.textContent = `${one.number === null ? percent(one.confidence) : short(one.number)} · ${duration(one.age_s)} ago`;
  const marks = [];
  if (one.suspect) marks.push(`suspect: ${one.suspect}`);
  if (one.corrected) marks.push(one.corrected === one.label ? "the cloud agrees" : `the cloud says ${one.corrected}`);
  else if (one.hard) marks.push(one.route === "provisional" ? "unsure, the cloud was asked" : "unsure");
  note.textContent = marks.join(" · ");
  note.className = marks.length && (one.suspect || one.hard) ? "note warn" : "note";
  button.setAttribute("aria-expanded", String(page.key === one.key));
}

function choose(key) {
  page.key = key;
  page.detail = page.why = null;
  byId("detail").hidden = !key;
  for (const id of ["window", "scores", "history", "legend"]) byId(id).replaceChildren();
  byId("why").textContent = byId("answer").textContent = "";
  byId("window-caption").textContent = "The next window will be drawn here.";
  if (key) {
    byId("detail-title").textContent = key;
    look();
  }
  if (page.report) showKeys();
}

function showDetail() {
  const {detail} = page;
  const unsure = detail.hard ? ", unsure" : "";
  const corrected = detail.corrected ? `, corrected to ${detail.corrected}` : "";
  byId("answer").textContent = `${detail.label || "(none)"} ${percent(detail.confidence)}${unsure}${corrected} · ${duration(detail.age_s)} ago · ${detail.id}`;
  if (detail.window) {
    const fits = page.why && page.why.id === detail.window.id;
    byId("window-caption").textContent = `Last window, ${short(detail.window.length / detail.window.rate_hz)} s`;
    byId("window").replaceChildren(windowCurves(detail, fits ? page.why : null));
    if (page.why && !fits) byId("why").textContent = `${whyInWords(page.why)} That was an earlier window.`;
  }
  const scores = detail.labels.map((label, at) => [label, detail.scores[at], at]).filter((one) => one[1] !== undefined);
  scores.sort((a, b) => b[1] - a[1]);
  byId("scores").replaceChildren(...scores.slice(0, 8).map(([label, score, at]) => meter(label, score, at)));
  const labels = [...new Set([...detail.labels, ...detail.steps.map((step) => step[1])])];
  byId("history").replaceChildren(answerBars(detail.steps, labels));
  const seen = [...new Set(detail.steps.map((step) => step[1]))];
  byId("legend").replaceChildren(...seen.map((label) => element("span", {}, element("i", {class: `f${labels.indexOf(label) % 8}`}), label || "(none)")));
}

function showEvents() {
  const {events, at} = page.report;
  const newest = Math.max(0, ...events.map((one) => one.end || one.start));
  const line = timeline(events, newest > 1e8 ? Math.max(at, newest) : newest);
  byId("timeline").replaceChildren(...(line ? [line] : []));
  const items = events.slice(-8).reverse().map((one) => element("li", {}, `${clock(one.kind === "end" ? one.end : one.start)} ${one.event} ${one.kind}s on ${one.key}: ${one.label}`));
  byId("events").replaceChildren(...(items.length ? items : [element("li", {class: "soft"}, "none yet")]));
}

function showCorrections() {
  const {corrections, cloud} = page.report;
  byId("agreement").textContent = cloud.url
    ? `${cloud.corrections} corrections, ${cloud.agreed} of them agreed with the device; ${cloud.failures} requests failed.`
    : "This application asks no cloud; every answer is the device's own.";
  const items = corrections.slice().reverse().map((one) => {
    const what = one.reason ? `stays ${one.label} (${one.reason})` : one.device === one.label ? `${one.label}, as the device said` : `${one.device || "(none)"} → ${one.label}`;
    return element("li", {class: !one.reason && one.device !== one.label ? "warn" : ""}, `${one.key}: ${what}`);
  });
  byId("corrections").replaceChildren(...items);
}

function showDrops() {
  const items = page.report.drops.map((one) => {
    const item = element("li", {}, element("strong", {}, `${one.count} ${one.what}: ${one.reason}.`), ` ${one.advice}`);
    if (one.example) item.append(element("div", {class: "soft"}, `The last one: ${one.example}`));
    return item;
  });
  byId("drops").replaceChildren(...(items.length ? items : [element("li", {class: "soft"}, "Everything was used.")]));
}

function showLatency() {
  const rows = Object.entries(page.report.latency_ms).filter(([, one]) => one.count);
  const cells = (name, one) => [element("th", {scope: "row"}, name), ...[one.p50, one.p99, one.mean].map((value) => element("td", {}, `${short(value)} ms`)), element("td", {}, String(one.count))];
  byId("latency").replaceChildren(
    element("thead", {}, element("tr", {}, ...["stage", "median", "99 of 100", "mean", "times"].map((name) => element("th", {scope: "col"}, name)))),
    element("tbody", {}, ...rows.map(([name, one]) => element("tr", {}, ...cells(name, one)))),
  );
}

function showTrends() {
  const of = (name) => page.trends.map((one) => one[name]);
  byId("trends").replaceChildren(
    trend("Answers a second", of("answers"), short), trend("Unsure", of("hard"), percent), trend("Sent to the cloud", of("cloud"), percent),
    trend("99 of 100 answers within", of("p99"), (value) => `${short(value)} ms`),
  );
}

function showBundle() {
  const {app, backend, update, governor, board, process, brokers} = page.report;
  const facts = [
    ["model", app.model], ["answers by", backend.backend || `${backend.variant} on ${backend.engine}`], ["task", app.task],
    ["window", `${short(app.window_s)} s, every ${short(app.hop_s)} s, at ${short(app.rate_hz)} Hz`],
    ["brokers", Object.entries(brokers).map(([name, up]) => `${name} ${up ? "connected" : "away"}`).join(", ") || "none"],
    ["process", `${app.pid}, ${short(process.cpu_s)} s of CPU, ${bytes(process.resident_bytes || 0)}`],
  ];
  if (update) facts.push(["updates", `${update.state}${update.last ? `: ${typeof update.last === "string" ? update.last : JSON.stringify(update.last)}` : ""}`]);
  if (update && update.held_back && update.held_back.length) facts.push(["held back", update.held_back.join(", ")]);
  if (governor) facts.push(["governor", governor.level ? `${governor.level} steps down: ${governor.reason}` : "nothing to do"]);
  if (board.throttled) facts.push(["board", String(board.throttled)]);
  byId("bundle").replaceChildren(...facts.map(([name, value]) => element("div", {}, element("dt", {}, name), element("dd", {}, value))));
}

// -- what a person does --------------------------------------------------------------------------------------------------

let typed = 0;
byId("filter").addEventListener("input", () => {
  clearTimeout(typed);
  typed = setTimeout(follow, 250);
});
byId("pause").addEventListener("click", () => {
  page.paused = !page.paused;
  byId("pause").setAttribute("aria-pressed", String(page.paused));
  byId("pause").textContent = page.paused ? "Go on" : "Pause";
  if (page.report) showTrouble();
});
byId("close").addEventListener("click", () => {
  const item = [...byId("keys").children].find((one) => one.dataset.key === page.key);
  choose("");
  if (item) item.firstChild.focus();
});
byId("explain").addEventListener("click", explain);
document.addEventListener("keydown", (event) => {
  if (event.key === "Escape" && page.key) byId("close").click();
});
follow();
