// The review view: a person says what kept windows are, with the keyboard, without seeing what device and cloud said.
"use strict";

const review = {case: null, counts: null, shown: false, undo: [], busy: false, erasing: 0};

async function reviewNext(id) {
  let next = id;
  try {
    const found = await ask("/api/cases?state=open&limit=1");
    review.counts = found.counts;
    next = id || (found.cases[0] && found.cases[0].id);
    review.case = next ? await ask(`/api/cases/one?id=${encodeURIComponent(next)}`) : null;
    review.shown = false;
    reviewSays("");
  } catch (error) {
    if (next && error.status === 404) return reviewNext();
    reviewSays(error.message);
  }
  showReview();
}

// A case may make room for others, or be erased, while a person looks at it: the next one, then.
async function reviewFailed(error) {
  if (error.status === 404) await reviewNext();
  byId("review-done").textContent = "";
  reviewSays(error.message);
}

function reviewSays(text) {
  byId("review-error").textContent = text;
}

async function labelCase(label) {
  if (!review.case || review.busy) return;
  review.busy = true;
  try {
    await ask("/api/cases/label", {id: review.case.id, label});
    review.undo.push(review.case.id);
    byId("review-done").textContent = `${label}, noted.`;
    await reviewNext();
  } catch (error) {
    await reviewFailed(error);
  } finally {
    review.busy = false;
  }
}

async function undoLabel() {
  const id = review.undo.pop();
  if (!id) return;
  try {
    await ask("/api/cases/label", {id, label: ""});
    byId("review-done").textContent = "Taken back.";
    await reviewNext(id);
  } catch (error) {
    await reviewFailed(error);
  }
}

async function revealAnswers() {
  if (!review.case) return;
  try {
    review.case = await ask(`/api/cases/one?answers=1&id=${encodeURIComponent(review.case.id)}`);
    review.shown = true;
    showReview();
  } catch (error) {
    await reviewFailed(error);
  }
}

// Erasing takes two presses: the first one says what the second one does.
async function eraseCases(button, what, asked) {
  if (review.erasing !== button) {
    review.erasing = button;
    button.textContent = `Press again: ${what}`;
    return;
  }
  review.erasing = 0;
  try {
    const {erased} = await ask("/api/cases/erase", asked);
    byId("review-done").textContent = `${count(erased, "case")} erased.`;
    review.undo = [];
  } catch (error) {
    reviewSays(error.message);
  }
  reviewNext();
}

// -- what is shown ----------------------------------------------------------------------------------------------------

function showReview() {
  const {counts, case: one} = review;
  if (!counts) return;
  const done = counts.labelled + counts.aside;
  byId("review-progress").replaceChildren(
    element("p", {}, `${count(done, "case")} of ${done + counts.open} looked at; ${short(counts.labelled)} with a label. ${bytes(counts.bytes)} kept.`),
    shares([[counts.labelled, "device"], [counts.aside, "changed"], [counts.open, "rest"]], "Labelled, put aside, open"),
  );
  byId("review-export").hidden = !counts.labelled;
  byId("review-undo").disabled = !review.undo.length;
  byId("review-case").hidden = !one;
  byId("review-none").hidden = Boolean(one);
  byId("erase-all").textContent = "Erase all cases";
  review.erasing = 0;
  if (one) showCase(one);
}

function showCase(one) {
  const seconds = short(one.window.length / one.window.rate_hz);
  byId("case-title").textContent = one.key;
  byId("case-about").textContent = `${seconds} s from ${one.start > 1e8 ? new Date(1000 * one.start).toLocaleString("en-GB") : `${short(one.start)} s`}`;
  byId("case-window").replaceChildren(windowCurves(one.window, null, width(byId("case-window"))));
  byId("erase-key").textContent = `Erase the cases of ${cut(one.key, 30)}`;
  byId("case-choices").replaceChildren(...one.choices.map((label, at) => {
    const key = keyOf(one, at);
    const button = element("button", {type: "button"}, ...(key ? [element("kbd", {}, key)] : []), label);
    button.addEventListener("click", () => labelCase(label));
    return button;
  }));
  byId("case-reveal").disabled = review.shown;
  byId("case-answers").replaceChildren(...(review.shown ? answersOf(one) : []));
}

function keyOf(one, at) {
  if (at < one.labels.length) return at < 9 ? String(at + 1) : "";
  return at === one.labels.length ? "0" : "s";
}

function answersOf(one) {
  const reasons = {hard: "the device was unsure", audit: "the cloud checks some trusted answers", suspect: "its readings are suspect", random: "drawn at random", differ: "a new model says something else"};
  const lines = [`The device said ${one.device.label || "(none)"}, ${percent(one.device.confidence)}.`];
  lines.push(one.cloud ? `The cloud said ${one.cloud.label}, ${percent(one.cloud.confidence)}.` : "The cloud has not said anything.");
  if (one.rival) lines.push(`The model on trial said ${one.rival}.`);
  lines.push(`Kept because ${reasons[one.why] || one.why}.`);
  return lines.map((text) => element("p", {}, text));
}

// -- what a person does -----------------------------------------------------------------------------------------------

function reviewKey(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || event.target.matches("input, textarea, select")) return;
  const {case: one} = review;
  if (event.key === "u") undoLabel();
  else if (event.key === "r") revealAnswers();
  else if (one) {
    const at = one.choices.findIndex((_, place) => keyOf(one, place) === event.key);
    if (at >= 0) labelCase(one.choices[at]);
  }
}

// Live and review are two views of one page; the address says which.
function route() {
  const reviewing = location.hash === "#review";
  byId("live").hidden = reviewing;
  byId("review").hidden = !reviewing;
  byId("pause").hidden = reviewing;
  byId("to-live").toggleAttribute("aria-current", !reviewing);
  byId("to-review").toggleAttribute("aria-current", reviewing);
  document.removeEventListener("keydown", reviewKey);
  if (!reviewing) return;
  document.addEventListener("keydown", reviewKey);
  reviewNext();
}

byId("review-undo").addEventListener("click", undoLabel);
byId("case-reveal").addEventListener("click", revealAnswers);
byId("review-more").addEventListener("click", () => reviewNext());
byId("erase-key").addEventListener("click", (event) => eraseCases(event.target, `erase all cases of ${cut(review.case.key, 30)}`, {key: review.case.key}));
byId("erase-all").addEventListener("click", (event) => eraseCases(event.target, "erase every case", {all: true}));
window.addEventListener("hashchange", route);
route();
