// The page of a running application: is it well, is it right, what did it just do, and why.
"use strict";

const byId = (id) => document.getElementById(id);
const TREND = 240; // pictures that trends remember: two minutes
const REMEMBERED = 200; // things that happened
const STAGES = {
  decode: "read a message", window: "cut windows", wait: "wait for others", engine: "run the model", publish: "hand over", cloud: "ask the cloud",
  total: "all, without cloud",
};

const OUTCOMES = {accepted: "f2", "rolled back": "f1", refused: "f6"};

const page = {report: null, paused: false, key: "", detail: null, why: null, trends: [], asking: false, said: "", spans: new Map(), feed: new Map()};

function say(text, kind, summary = "", troubles = []) {
  if (page.said !== text) byId("state").textContent = text; // a screen reader hears a change alone
  page.said = text;
  byId("health").className = `health ${kind}`;
  byId("summary").textContent = summary;
  byId("trouble").replaceChildren(...troubles.map((one) => element("li", {}, one)));
}

// -- what comes -------------------------------------------------------------------------------------------------------

const follower = new Follower(
  (report) => {
    byId("live").className = "";
    remember(report);
    if (page.paused) return;
    page.report = report;
    show();
    if (page.key) look();
  },
  (why) => {
    byId("live").className = page.report ? "stale" : "empty";
    say("Not connected", "bad", `${why} What is shown is old; the page goes on by itself.`);
  },
  () => {
    byId("live").className = page.report ? "stale" : "empty";
    say("A token is needed", "warn", "This application shows itself to those who have its token: it stands in the file that token_file under [observe] names.");
  },
);

// Have the application keep a token in a cookie, sent in a header: no address, history or log holds it.
async function enter(token) {
  let refused = false;
  try {
    await fetch("/", {headers: {Authorization: `Bearer ${token}`}, cache: "no-store"});
    await ask("/api/key?key="); // nothing, or 401 without the right token
  } catch (error) {
    refused = error.status === 401;
  }
  byId("token-form").hidden = !refused;
  follower.begin();
}

function remember(report) {
  const {rates, latency_ms: latency} = report;
  page.trends.push({
    lost: report.drops.reduce((sum, one) => sum + one.count, 0), messages: rates.messages_per_s, answers: rates.predictions_per_s, hard: rates.hard_share, cloud: rates.cloud_share, p99: latency.total.p99,
  });
  if (page.trends.length > TREND) page.trends.shift();
  for (const one of report.events) {
    const known = page.spans.get(one.id);
    page.spans.set(one.id, {...known, ...one, end: one.end || (known && known.end)});
    const ended = one.kind === "end";
    happened(`${one.id} ${one.kind}`, {
      t: ended ? one.end : one.start, label: one.label,
      text: ended ? `${one.event} ended after ${duration(one.end - one.start)}` : `${one.event} began`, key: one.key,
    });
  }
  for (const one of report.corrections) {
    if (!one.reason && one.device === one.label) continue;
    const text = one.reason ? `The cloud did not answer (${one.reason}); it stays ${one.label}` : `The cloud says ${one.label}, the device said ${one.device || "(none)"}`;
    happened(`${one.id} cloud`, {t: one.end, label: one.label, text, key: one.key});
  }
  for (const all of [page.spans, page.feed]) while (all.size > REMEMBERED) all.delete(all.keys().next().value);
}

function happened(id, what) {
  if (!page.feed.has(id)) page.feed.set(id, what);
}

async function look() {
  if (page.asking || !page.key) return;
  page.asking = true;
  try {
    const found = await ask(`/api/key?key=${encodeURIComponent(page.key)}`);
    if (found.key === page.key) {
      page.detail = found;
      showDetail();
    }
  } catch (error) {
    if (detail.verdict) detail.verdict.textContent = error.message;
  } finally {
    page.asking = false;
  }
}

async function explain() {
  if (page.why) page.why = null;
  else {
    try {
      page.why = await ask("/api/explain", {key: page.key});
    } catch (error) {
      detail.why.hidden = false;
      detail.why.textContent = error.message;
      return;
    }
  }
  showDetail();
}

function whyInWords(why) {
  const said = (wanted) => Object.entries(why.channels).filter(([, effect]) => wanted * effect > 0.005).sort((a, b) => wanted * (b[1] - a[1])).slice(0, 2).map(([name]) => name);
  const parts = [[said(1), "for"], [said(-1), "against"]].filter(([names]) => names.length);
  const spoken = parts.map(([names, how]) => `${names.join(" and ")} ${names.length === 1 ? "speaks" : "speak"} ${how} it`);
  const what = why.label ? `${why.label}, ${percent(why.score)}` : "This answer";
  return `${what}: ${spoken.join("; ") || "no channel alone moves it"}. Each part of the window was blanked in turn, and the model asked again. Green: without it the answer is weaker. Red: without it, stronger.`;
}

// -- what is shown ----------------------------------------------------------------------------------------------------

function show() {
  const {app, backend} = page.report;
  byId("model").textContent = app.name || app.model;
  document.title = `${app.name || app.model} · edge-runtime`;
  byId("views").hidden = !app.cases;
  byId("about").textContent = `${app.model} · ${backend.backend || backend.variant} · up ${duration(app.uptime_s)}`;
  showHealth();
  showFigures();
  showKeys();
  showHappened();
  showCloud();
  showDrops();
  showLatency();
  showBundle();
}

function troubles(report) {
  const found = [];
  for (const [name, connected] of Object.entries(report.brokers)) if (!connected) found.push(`Broker ${name} is not connected: is it running, and are address and password right?`);
  for (const one of report.sinks) if (one.stalled_s) found.push(`${one.name} takes no answers for ${duration(one.stalled_s)}: ${one.waiting} wait${one.blocks ? ", and readings wait for it" : ""}.`);
  for (const [name, reason] of Object.entries(report.backend.failed || {})) found.push(`${name} does not work: ${reason}`);
  if (report.backend.backend === "none") found.push("Nothing on this device answers.");
  if (report.cloud.reachable === 0) found.push("The cloud is not reachable; hard cases wait in the outbox.");
  if (report.gauges.outbox_accepting === 0) found.push("The outbox takes no cases: look at its disk.");
  if (report.outbox && report.outbox.dead) found.push(`${report.outbox.dead} dead letters: edge-runtime outbox list`);
  if (report.governor && report.governor.level) found.push(`Stepped down ${report.governor.level} times: ${report.governor.reason}`);
  for (const one of report.alarms) found.push(`${one.key}: ${one.message}`);
  for (const one of report.keys) if (one.suspect) found.push(`Readings of ${one.key} are suspect: ${one.suspect}`);
  return found;
}

function showHealth() {
  const {report} = page;
  const found = troubles(report);
  const {messages_per_s: messages, predictions_per_s: answers} = report.rates;
  const {lost} = page.trends[page.trends.length - 1];
  const losing = lost - page.trends[Math.max(0, page.trends.length - 20)].lost;
  const silent = report.keys.filter((one) => isSilent(one)).length;
  const summary = `${count(report.keys_found, "stream")}${follower.filter ? " with this in the name" : ""}, ${short(answers)} answers a second, ${lost ? `${short(lost)} not used` : "everything was used"}.`;
  if (page.paused) say("Paused", "warn", "The picture stands still; the application does not.");
  else if (found.length) say(found.length === 1 ? "1 thing needs you" : `${found.length} things need you`, "bad", summary, found);
  else if (messages === 0) say("No messages in the last 10 s", "warn", "Are the sensors on, and do they reach the broker?");
  else if (silent) say(`${count(silent, "stream")} silent`, "warn", summary);
  else if (losing) say("Well, but some of what comes is not used", "warn", `${summary} Why and what to do stands under “Not used”.`);
  else say("All is well", "good", summary);
}

function count(n, name) {
  return `${n} ${name}${n === 1 ? "" : "s"}`;
}

function isSilent(one) {
  return one.age_s > Math.max(10, 5 * page.report.app.hop_s);
}

function figure(name, value, unit, values) {
  const parts = [element("dt", {}, name), element("dd", {}, value, ...(unit ? [" ", element("small", {}, unit)] : []))];
  if (values && values.length > 1) parts[1].append(trend(values));
  return element("div", {}, ...parts);
}

function showFigures() {
  const {rates, outbox, board, process, latency_ms: latency, cloud} = page.report;
  const of = (name) => page.trends.map((one) => one[name]);
  const figures = [
    figure("Messages", short(rates.messages_per_s), "/s", of("messages")), figure("Answers", short(rates.predictions_per_s), "/s", of("answers")),
    figure("99 of 100 within", short(latency.total.p99), "ms", of("p99")), figure("Unsure answers", percent(rates.hard_share), "", of("hard")),
  ];
  if (cloud.url) figures.push(figure("Sent to the cloud", percent(rates.cloud_share), "", of("cloud")));
  if (outbox) figures.push(figure("In the outbox", short(outbox.queued), outbox.queued ? `oldest ${duration(outbox.oldest_age_s)}` : "waiting"));
  if (board.temperature_c !== undefined) figures.push(figure("Temperature", String(Math.round(board.temperature_c)), "°C"));
  if (board.power_w !== undefined) figures.push(figure("Power", short(board.power_w), "W"));
  if (process.resident_bytes) figures.push(figure("Memory", bytes(process.resident_bytes), ""));
  byId("figures").replaceChildren(...figures);
}

// Keys keep their element from picture to picture: whoever stands on one with the keyboard stays there.
function showKeys() {
  const {labels} = page.report.app;
  const list = byId("keys");
  const known = new Map([...list.children].map((item) => [item.dataset.key, item]));
  const wanted = page.report.keys.map((one) => {
    const item = known.get(one.key) || keyItem(one.key);
    fillKey(item.firstChild, one, labels);
    return item;
  });
  placeDetail(wanted);
  wanted.forEach((item, at) => {
    if (list.children[at] !== item) list.insertBefore(item, list.children[at] || null);
  });
  while (list.children.length > wanted.length) list.lastChild.remove();
  const hidden = page.report.keys_found - page.report.keys.length;
  const none = byId("filter").value ? "No stream has this in its name." : "No stream has answered yet.";
  byId("more").textContent = hidden > 0 ? `and ${hidden} more; the filter finds them` : page.report.keys_found ? "" : none;
  const seen = new Set(page.report.keys.flatMap((one) => one.history.map((step) => step[0])));
  const named = labels.filter((label) => seen.has(label)).slice(0, 12);
  byId("legend").replaceChildren(...named.map((label) => element("span", {}, element("i", {class: `dot ${hue(labels, label)}`}), label)));
}

function keyItem(key) {
  const button = element("button", {type: "button", class: "card", "aria-expanded": "false"});
  for (const name of ["name soft", "age soft", "label", "sure", "past", "note"]) button.append(element("span", {class: name}));
  button.addEventListener("click", () => choose(page.key === key ? "" : key));
  const item = element("li", {}, button);
  item.dataset.key = key;
  return item;
}

function fillKey(button, one, labels) {
  const [name, age, label, sure, past, note] = button.children;
  name.textContent = name.title = one.key;
  age.textContent = `${duration(one.age_s)} ago`;
  label.replaceChildren(element("i", {class: `dot ${hue(labels, one.label)}`}), one.label || "(none)");
  sure.textContent = one.number === null ? percent(one.confidence) : short(one.number);
  past.replaceChildren(cardBars(one.history, labels));
  const silent = isSilent(one);
  note.className = `note ${one.suspect ? "bad" : silent || one.hard ? "warn" : ""}`;
  note.textContent = one.suspect ? `Readings are suspect: ${one.suspect}` : silent ? `Silent for ${duration(one.age_s)}` : asked(one);
  button.classList.toggle("silent", silent);
  button.setAttribute("aria-expanded", String(page.key === one.key));
}

function asked(one) {
  if (one.corrected) return one.corrected === one.label ? "Unsure; the cloud agrees" : `Unsure; the cloud says ${one.corrected}`;
  if (one.hard) return one.route === "provisional" ? "Unsure; the cloud is asked" : "Unsure";
  return "";
}

// -- one stream -------------------------------------------------------------------------------------------------------

const detail = {item: null};

function buildDetail() {
  const make = (name, attributes = {}, ...children) => element(name, attributes, ...children);
  Object.assign(detail, {
    title: make("h3", {id: "detail-title"}), verdict: make("p", {class: "verdict"}), caption: make("figcaption"), window: make("div", {class: "window"}),
    why: make("p", {class: "why", role: "status"}), scores: make("div"), history: make("div"), drift: make("div", {id: "drift"}),
    explain: make("button", {type: "button", class: "main", id: "explain"}, "Why this answer?"), close: make("button", {type: "button", id: "close"}, "Close"),
  });
  detail.why.hidden = true;
  detail.explain.addEventListener("click", explain);
  detail.close.addEventListener("click", () => leave());
  detail.item = make(
    "li", {class: "detail", id: "detail", "aria-labelledby": "detail-title"},
    make("div", {class: "bar"}, detail.title, detail.explain, detail.close),
    make(
      "div", {class: "parts"},
      make("figure", {}, detail.caption, detail.window, detail.why),
      make("div", {}, detail.verdict, detail.scores),
      make("figure", {class: "whole"}, make("figcaption", {}, "Labels and confidence over time"), detail.history),
      detail.drift,
    ),
  );
}

// The stream's own part stands below the row of its card.
function placeDetail(items) {
  const at = items.findIndex((item) => item.dataset.key === page.key);
  if (at < 0 || !page.key) return;
  const columns = getComputedStyle(byId("keys")).gridTemplateColumns.split(" ").length;
  items.splice(Math.min(items.length, (Math.floor(at / columns) + 1) * columns), 0, detail.item);
}

function choose(key) {
  page.key = key;
  page.detail = page.why = null;
  buildDetail();
  detail.title.textContent = key;
  detail.caption.textContent = "The next window will be drawn here.";
  if (page.report) showKeys();
  if (key) look();
}

function leave() {
  const item = [...byId("keys").children].find((one) => one.dataset.key === page.key);
  choose("");
  if (item) item.firstChild.focus();
}

function showDetail() {
  const {detail: found, why} = page;
  const {labels} = found;
  const drawn = why ? why.window : found.window;
  detail.verdict.replaceChildren(...(why ? heldVerdict(why, labels) : verdict(found, labels)));
  detail.explain.textContent = why ? "Follow again" : "Why this answer?";
  detail.explain.disabled = !found.window;
  detail.why.hidden = !why;
  if (why) detail.why.textContent = whyInWords(why);
  if (drawn) {
    detail.caption.textContent = `${why ? "The window that was explained" : "The last window"}, ${short(drawn.length / drawn.rate_hz)} s`;
    detail.window.replaceChildren(windowCurves(drawn, why, width(detail.window)));
  }
  detail.scores.replaceChildren(...(why ? effectMeters(why) : scoreMeters(found)));
  detail.history.replaceChildren(answerBars(found.steps, labels, width(detail.history)));
  detail.drift.replaceChildren(...driftTable(found.drift));
}

// Each channel's share of what begins an alarm of drift; two detectors, a column each.
function driftTable(drift) {
  const title = element("h4", {}, "How far from an alarm of drift");
  const note = (text) => element("p", {class: "soft"}, text);
  if (!drift) return [title, note("Nothing is compared: this bundle does not say how its sensors were in training, or [drift] looks for nothing.")];
  const past = drift.past === null ? [] : [element("tr", {class: "total"}, element("th", {scope: "row"}, "all"), element("td"), driftCell(drift.past, ""))];
  const rows = drift.channels.map((one) => element(
    "tr", {}, element("th", {scope: "row"}, one.channel), driftCell(one.mounting, one.fault), driftCell(one.past, one.most),
  ));
  const heads = ["channel", "mounting and unit", "since it began"].map((name) => element("th", {scope: "col"}, name));
  const table = element("table", {class: "drift"}, element("thead", {}, element("tr", {}, ...heads)), element("tbody", {}, ...rows, ...past));
  return [title, table, note(`The line is the bound: 100 % begins an alarm. ${rivals(drift.channels)}${beginning(drift)}`)];
}

// One swapped axis makes other repairs plausible, too; the channels they name need not be wrong.
function rivals(channels) {
  const faults = new Set(channels.filter((one) => one.mounting >= 1).map((one) => one.fault));
  return faults.size > 1 ? "Of several faults past it, the alarm names the one that explains most; the other channels may be right. " : "";
}

function beginning({past, looks, wanted}) {
  if (!wanted) return "This bundle does not compare a sensor with its own past.";
  if (past !== null) return `The past is the first ${count(looks, "look")} at this stream.`;
  return looks < wanted ? `The past is being learnt: ${looks} of ${wanted} looks.` : "The past is known; ten looks at what comes now are awaited.";
}

function driftCell(share, why) {
  if (share === null) return element("td", {class: "soft"}, "not known");
  const over = share >= 1;
  const says = `${percent(share)}${over ? ", over the bound" : ""}${why && share >= 0.5 ? `: ${why}` : ""}`;
  return element("td", {}, boundBar(share, over), element("span", {class: over ? "bad" : ""}, says));
}

function verdict(found, labels) {
  const number = found.number === null ? percent(found.confidence) : short(found.number);
  return [
    element("i", {class: `dot ${hue(labels, found.label)}`}), element("strong", {}, found.label || "(none)"), ` ${number}`, element("br"),
    asked(found) || "The device is sure", element("br"),
    element("span", {class: "soft"}, `${duration(found.age_s)} ago · answered in ${short(found.latency_ms)} ms`), element("br"), element("span", {class: "soft"}, found.id),
  ];
}

function heldVerdict(why, labels) {
  const named = why.label ? [element("i", {class: `dot ${hue(labels, why.label)}`}), element("strong", {}, why.label), ` ${percent(why.score)}`] : ["This answer"];
  return [...named, element("br"), "What each channel does to it", element("br"), element("span", {class: "soft"}, why.id)];
}

function scoreMeters(found) {
  const scores = found.labels.map((label, at) => [label, found.scores[at]]).filter((one) => one[1] !== undefined);
  scores.sort((a, b) => b[1] - a[1]);
  return scores.slice(0, 8).map(([label, score]) => meter(label, score, hue(found.labels, label), percent(score)));
}

function effectMeters(why) {
  const most = Math.max(...Object.values(why.channels).map(Math.abs), 1e-9);
  return Object.entries(why.channels).map(([name, effect]) => meter(
    name, Math.abs(effect) / most, effect >= 0 ? "for" : "against", signed(effect),
  ));
}

function signed(effect) {
  if (Math.abs(effect) < 0.005) return "0";
  return `${effect > 0 ? "+" : "−"}${Math.abs(effect).toFixed(2)}`;
}

function width(place) {
  return Math.max(200, Math.floor(place.clientWidth));
}

// -- what happened, and the rest --------------------------------------------------------------------------------------

function showHappened() {
  const {app, at} = page.report;
  const spans = [...page.spans.values()];
  const newest = Math.max(0, ...spans.map((one) => one.end || one.start));
  const line = timeline(spans, app.labels, newest > 1e8 ? Math.max(at, newest) : newest, width(byId("timeline")));
  byId("timeline").replaceChildren(...(line ? [line] : []));
  const newestFirst = [...page.feed.values()].sort((a, b) => b.t - a.t).slice(0, 30);
  const items = newestFirst.map((one) => element(
    "li", {}, element("i", {class: `dot ${hue(app.labels, one.label)}`}), element("span", {}, one.text, element("br"), element("span", {class: "soft"}, one.key)), element("time", {}, clock(one.t)),
  ));
  byId("feed").replaceChildren(...(items.length ? items : [element("li", {class: "soft"}, element("span"), "Nothing yet: no event, no correction.")]));
}

function showCloud() {
  const {cloud, counts} = page.report;
  if (!cloud.url) {
    byId("cloud").replaceChildren(element("p", {class: "soft"}, "This application asks no cloud; every answer is the device's own."));
    return;
  }
  const {predictions_total: answers, audit_total: audits} = counts;
  const share = cloud.cases / Math.max(1, answers);
  const changed = cloud.corrections - cloud.agreed;
  const parts = [
    element("p", {class: "cloud-line"}, `${percent(1 - share)} of ${short(answers)} answers stayed on the device, ${percent(share)} went to the cloud.`),
    shares([[answers - cloud.cases, "device"], [cloud.cases, "sent"]], "Share of the device and of the cloud"),
    element("p", {class: "cloud-line"}, `Of ${short(cloud.corrections)} that came back, the cloud agreed with ${short(cloud.agreed)} and said otherwise of ${short(changed)}.`),
    shares([[cloud.agreed, "device"], [changed, "changed"]], "Agreed and said otherwise"),
  ];
  if (audits) parts.push(element("p", {class: "cloud-line"}, `Of ${short(audits)} trusted answers that were checked, ${short(counts.audit_agreed_total)} were right.`));
  parts.push(element("p", {class: "soft cloud-line"}, `${cloud.url} · ${count(cloud.failures, "failed request")}`));
  byId("cloud").replaceChildren(...parts);
}

function showDrops() {
  const items = page.report.drops.map((one) => {
    const item = element("li", {}, element("strong", {}, `${short(one.count)} ${one.what}`), ` (${one.reason}). ${one.advice.charAt(0).toUpperCase()}${one.advice.slice(1)}`);
    if (one.example) item.append(element("div", {class: "soft"}, `The last one: ${one.example}`));
    return item;
  });
  byId("drops").replaceChildren(...(items.length ? items : [element("li", {class: "soft"}, "Everything that came was used.")]));
}

function showLatency() {
  const rows = Object.entries(page.report.latency_ms).filter(([, one]) => one.count);
  const cells = (name, one) => [
    element("th", {scope: "row"}, STAGES[name] || name), element("td", {}, stageBar(one)),
    ...[one.p50, one.p99].map((value) => element("td", {}, `${short(value)} ms`)),
  ];
  byId("latency").replaceChildren(
    element("thead", {}, element("tr", {}, ...["step", "10 µs to 10 s", "half within", "99 of 100"].map((name) => element("th", {scope: "col"}, name)))),
    element("tbody", {}, ...rows.map(([name, one]) => element("tr", {class: name === "total" ? "total" : ""}, ...cells(name, one)))),
  );
}

function showBundle() {
  const {app, backend, update, governor, board, process, brokers} = page.report;
  const facts = [
    ["Bundle", app.model], ["Answers by", backend.backend ? `${backend.backend} on ${backend.engine}` : `${backend.variant} on ${backend.engine}`],
    ["Window", `${short(app.window_s)} s, every ${short(app.hop_s)} s, at ${short(app.rate_hz)} Hz`],
    ["Broker", Object.entries(brokers).map(([name, up]) => `${name}, ${up ? "connected" : "away"}`).join("; ") || "none"],
  ];
  if (update) facts.push(...updateFacts(update));
  else facts.push(["Updates", "by hand"]);
  if (governor) facts.push(["Governor", governor.level ? `${governor.level} steps down: ${governor.reason}` : "nothing to do"]);
  if (board.throttled) facts.push(["Throttled", String(board.throttled)]);
  if (board.battery_percent !== undefined) facts.push(["Battery", `${Math.round(board.battery_percent)} %`]);
  facts.push(["Process", `${app.pid}; ${short(process.cpu_s)} s of CPU since ${clock(app.started)}`], ["Runtime", app.version]);
  byId("bundle").replaceChildren(...facts.map(([name, value]) => element("div", {}, element("dt", {}, name), element("dd", {}, value))));
  showHistory(update ? update.history : []);
}

// How the last updates ended.
function showHistory(outcomes) {
  byId("history").hidden = !outcomes.length;
  byId("outcomes").replaceChildren(...outcomes.map((one) => element(
    "li", {}, element("i", {class: `dot ${OUTCOMES[one.result]}`}),
    element("span", {}, element("strong", {}, one.bundle), ` ${one.result}`, ...(one.reason ? [`: ${one.reason}`] : []), element("br"),
      element("span", {class: "soft"}, one.sha256 ? `file ${one.sha256.slice(0, 12)}` : "file of the configuration")),
    element("time", {}, one.at_s ? moment(one.at_s) : "no date"),
  )));
}

function proofSays(proof) {
  const {labels, of, waiting} = proof;
  return `${labels} of ${of} labels: ${proof.for} for it, ${proof.against} against, ${proof.neither} neither; ${waiting} wait under Review`;
}

function updateFacts(update) {
  const facts = [["Updates", update.candidate ? `${update.state}: ${update.candidate}` : update.state]];
  if (update.compared) facts.push(["Compared", `${update.compared} answers, ${percent(update.agreement)} the same`]);
  if (update.proof) facts.push(["Proof", proofSays(update.proof)]);
  if (update.last) facts.push(["Last step", update.last]);
  if (update.held_back && update.held_back.length) facts.push(["Held back", update.held_back.join(", ")]);
  if (update.note) facts.push(["Note", update.note]);
  return facts;
}

// -- what a person does -----------------------------------------------------------------------------------------------

let typed = 0;
byId("filter").addEventListener("input", () => {
  clearTimeout(typed);
  typed = setTimeout(() => follower.begin(byId("filter").value), 250);
});
byId("pause").addEventListener("click", () => {
  page.paused = !page.paused;
  byId("pause").setAttribute("aria-pressed", String(page.paused));
  byId("pause").textContent = page.paused ? "Go on" : "Pause";
  if (page.report) showHealth();
});
byId("token-form").addEventListener("submit", (event) => {
  event.preventDefault();
  enter(byId("token").value);
});
document.addEventListener("keydown", (event) => {
  if (event.key === "Escape" && page.key) leave();
});
const linked = location.hash.match(/^#token=(.+)$/);
if (linked) {
  history.replaceState(null, "", "/"); // before the page shows or asks anything
  enter(decodeURIComponent(linked[1]));
} else follower.begin();
