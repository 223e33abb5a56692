// A browser that looks at a page, and notes what must not happen: requests to other hosts, errors, dialogs.
import fs from "node:fs";
import readline from "node:readline";
import {createRequire} from "node:module";

const installed = createRequire(`${process.env.PAGE_MODULES}/package.json`);
const {chromium} = installed("playwright-core");
const axe = fs.readFileSync(installed.resolve("axe-core/axe.min.js"), "utf8");
const lines = readline.createInterface({input: process.stdin})[Symbol.asyncIterator]();

export const PATIENCE = 60_000;
export const PHONE = {width: 390, height: 844};
export const DESKTOP = {width: 1400, height: 900};

export async function browser() {
  return chromium.launch({executablePath: process.env.CHROMIUM, args: ["--no-sandbox", "--disable-gpu"]});
}

// A fresh page; `bad` gathers what must not happen, `expected` says which console lines are meant.
export async function open(running, url, {viewport = DESKTOP, colorScheme = "light", expected = () => false} = {}) {
  const context = await running.newContext({viewport, colorScheme, reducedMotion: "reduce"});
  context.setDefaultTimeout(PATIENCE);
  const page = await context.newPage();
  const origin = new URL(url).origin;
  const bad = [];
  page.on("request", (request) => request.url().startsWith(`${origin}/`) || bad.push(`request to ${request.url()}`));
  page.on("pageerror", (error) => bad.push(`error: ${error}`));
  page.on("console", (line) => ["error", "warning"].includes(line.type()) && !expected(line.text()) && bad.push(`console: ${line.text()}`));
  page.on("dialog", (dialog) => (bad.push(`dialog: ${dialog.message()}`), dialog.dismiss()));
  await page.goto(url);
  return {page, bad};
}

export async function live(page, streams = 1) {
  await page.waitForFunction((least) => document.querySelectorAll("#keys .card").length >= least && document.querySelector("#latency tbody tr"), streams);
}

export async function faults(page) {
  await page.evaluate(axe);
  const found = await page.evaluate(() => window.axe.run());
  const named = found.violations.map((one) => `${one.id}: ${one.nodes.map((node) => node.html.slice(0, 120)).join(" | ")}`);
  const wide = await page.evaluate(() => document.documentElement.scrollWidth - window.innerWidth);
  if (found.passes.length < 15) named.push(`axe looked at ${found.passes.length} rules only`);
  return wide > 0 ? [...named, `scrolls ${wide} px to the side`] : named;
}

// Have the test that drives this do something, and wait until it is done.
export async function please(what) {
  process.stdout.write(`${JSON.stringify({please: what})}\n`);
  await lines.next();
}

export function ensure(condition, what) {
  if (!condition) throw new Error(`not so: ${what}`);
}

// Run one of these scenarios: `node FILE SCENARIO URL [FOLDER]`; the last line is what it found.
export async function main(scenarios) {
  const [name, url, folder] = process.argv.slice(2);
  const running = await browser();
  let found;
  try {
    found = (await scenarios[name]({running, url, folder})) || [];
  } catch (error) {
    found = [String(error.stack || error)];
  }
  await running.close();
  process.stdout.write(`${JSON.stringify({found})}\n`);
  process.exit(0);
}
