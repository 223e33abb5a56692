// Scenarios of the live page; tests/browser/test_page.py drives them. Each returns what is wrong: nothing, mostly.
import {DESKTOP, PATIENCE, PHONE, ensure, faults, live, main, open, please} from "./browser.mjs";

const STREAMS = 10;
const LOOKS = [
  ["desktop", DESKTOP, "light"], ["dark", DESKTOP, "dark"], ["phone", PHONE, "light"], ["phone-dark", PHONE, "dark"],
];
const card = (page, name) => page.locator("#keys .card", {hasText: name});

async function explained(page, name) {
  await card(page, name).click();
  await page.locator("#explain:not([disabled])").click();
  await page.locator(".why", {hasText: "Green"}).waitFor();
}

// Every size and colour, with a stream open and its answer explained; pictures, if a folder for them is named.
async function every_look({running, url, folder}) {
  const wrong = [];
  for (const [name, viewport, colorScheme] of LOOKS) {
    const {page, bad} = await open(running, url, {viewport, colorScheme});
    await live(page, STREAMS);
    wrong.push(...(await faults(page)));
    await page.locator("#feed time").nth(5).waitFor();
    await explained(page, "rowing machine");
    wrong.push(...(await faults(page)), ...bad);
    if (folder && name !== "phone-dark") await painted(page, `${folder}/page-${name}.png`, viewport === PHONE ? 1400 : 940);
    await page.context().close();
  }
  return wrong;
}

// A picture of a page with a filter typed and a stream's answer explained, cut to this height.
async function painted(page, path, height) {
  await page.keyboard.press("Escape");
  await page.locator("#filter").fill("mat ");
  await page.waitForFunction(() => document.querySelectorAll("#keys .card").length === 5);
  await explained(page, "mat 1, right wrist");
  await page.evaluate(() => document.activeElement.blur());
  await page.setViewportSize({...page.viewportSize(), height});
  await page.evaluate(() => window.scrollTo(0, 0));
  await page.screenshot({path});
}

async function clicking_and_typing({running, url}) {
  const {page, bad} = await open(running, url);
  await live(page, STREAMS);
  ensure((await page.locator("img").count()) === 1, "no key, label or topic became an element");
  ensure((await card(page, "<img src=x onerror=alert(1)>").count()) === 1, "a hostile key is shown as it is");
  await card(page, "mat 3").click();
  await page.locator(".window polyline").nth(5).waitFor();
  ensure((await page.locator("#detail-title").textContent()) === "mat 3", "the stream that was clicked is open");
  await page.locator("#explain").click();
  await page.locator(".why", {hasText: "Green"}).waitFor();
  const held = await page.locator(".verdict").textContent();
  ensure(held.includes("mat 3@"), "the explained window is named");
  await page.waitForTimeout(1500); // three pictures later
  ensure((await page.locator(".verdict").textContent()) === held, "the explained window is held");
  await page.locator("#explain").click();
  await page.waitForFunction((text) => document.querySelector(".verdict").textContent !== text, held);
  await card(page, "<img").click();
  ensure((await page.locator("#detail-title").textContent()).startsWith("<img"), "a hostile key can be opened");
  await page.locator("#filter").fill("MAT 1");
  await page.waitForFunction(() => document.querySelectorAll("#keys .card").length === 2);
  await page.locator("#filter").fill("<b>nothing</b>");
  await page.locator("#more", {hasText: "No stream has this"}).waitFor();
  await page.locator("#filter").fill("");
  await page.waitForFunction((all) => document.querySelectorAll("#keys .card").length === all, STREAMS);
  await page.locator("#pause").click();
  const before = await page.locator("#figures").innerHTML();
  await page.waitForTimeout(1500);
  ensure((await page.locator("#figures").innerHTML()) === before, "a paused page stands still");
  await page.locator("#pause").click();
  await page.waitForFunction((text) => document.querySelector("#figures").innerHTML !== text, before);
  await please("send what is broken");
  await page.locator("#drops", {hasText: "malformed"}).waitFor();
  await page.locator("#drops", {hasText: "<i>broken"}).waitFor();
  await page.locator("#state", {hasText: "not used"}).waitFor();
  return bad;
}

async function keyboard_only({running, url}) {
  const {page, bad} = await open(running, url);
  await live(page, STREAMS);
  const focused = (part) => page.evaluate((selector) => document.activeElement.matches(selector), part);
  const tab_to = async (selector) => {
    for (let step = 0; step < 40 && !(await focused(selector)); step++) await page.keyboard.press("Tab");
    ensure(await focused(selector), `Tab reaches ${selector}`);
  };
  await page.keyboard.press("Tab");
  ensure(await focused(".skip"), "the first stop skips to the page's main part");
  await tab_to("#filter");
  await page.keyboard.type("wall");
  await page.waitForFunction(() => document.querySelectorAll("#keys .card").length === 1);
  await tab_to(".card");
  await page.keyboard.press("Enter");
  await page.locator("#explain:not([disabled])").waitFor();
  ensure(await focused('.card[aria-expanded="true"]'), "focus stays on the card while pictures come");
  await tab_to("#explain");
  await page.keyboard.press("Space");
  await page.locator(".why", {hasText: "Green"}).waitFor();
  await page.keyboard.press("Escape");
  await page.waitForFunction(() => !document.getElementById("detail"));
  ensure(await focused(".card"), "Escape closes it and goes back to the card");
  return bad;
}

// The token once in the address, then as a cookie; another token while it runs; the form for the new one.
async function tokens({running, url}) {
  const expected = (text) => text.includes("401");
  const plain = new URL("/", url).href;
  const first = await open(running, plain, {expected});
  await first.page.locator("#token-form").waitFor();
  const wrong = await faults(first.page);
  await first.page.locator("#token").fill("no such token");
  await first.page.keyboard.press("Enter");
  await first.page.locator("#token-form").waitFor();
  ensure((await first.page.context().cookies()).length === 0, "a wrong token is not kept");

  const {page, bad} = await open(running, url, {expected});
  await live(page);
  ensure(page.url() === plain, "the token leaves the address");
  const [cookie] = await page.context().cookies();
  ensure(cookie.httpOnly && cookie.sameSite === "Strict", "the cookie is for this page alone");
  await please("change the token");
  await page.reload();
  await page.locator("#token-form").waitFor();
  ensure((await page.locator("#state").textContent()) === "A token is needed", "the page says what is missing");
  await page.locator("#token").fill("second; token");
  await page.locator("#token-form button").click();
  await live(page);
  return [...wrong, ...bad, ...first.bad];
}

async function reconnecting({running, url}) {
  const expected = (text) => /ERR_CONNECTION_REFUSED|ERR_INCOMPLETE_CHUNKED|ERR_CONNECTION_RESET|ERR_EMPTY_RESPONSE/.test(text);
  const {page, bad} = await open(running, url, {expected});
  await live(page, STREAMS);
  await please("kill");
  await page.locator("#state", {hasText: "Not connected"}).waitFor();
  ensure((await page.locator("#live").getAttribute("class")) === "stale", "what is old looks old");
  await please("start");
  await page.waitForFunction(() => document.getElementById("live").className === "", null, {timeout: PATIENCE});
  await live(page);
  return bad;
}

// Axes are swapped under way: their channels cross the bound. Three updates end in three ways, the latest stands first.
async function drifting_and_updating({running, url, folder}) {
  const {page, bad} = await open(running, url);
  await live(page, STREAMS);
  await card(page, "mat 3").click();
  await page.locator("#drift", {hasText: "The past is the first 10 looks"}).waitFor();
  ensure((await page.locator("#drift tbody tr").count()) === 7, "six channels, and all together");
  ensure((await page.locator("#drift .bad").count()) === 0, "nothing is over the bound yet");
  ensure(!(await page.locator("#history").isVisible()), "without updates there is no list of them");
  await please("swap the axes of mat 3");
  await page.locator("#trouble", {hasText: "mat 3: orientation changed"}).waitFor();
  for (const row of [0, 1]) await page.locator("#drift tbody tr").nth(row).locator("td:nth-child(2) .bad", {hasText: "over the bound: "}).waitFor();
  await page.locator("#drift p", {hasText: "the alarm names the one that explains most"}).waitFor();
  const endings = [
    ["drop a good bundle", "exercise-watch/2 accepted"], ["drop a stranger's bundle", "watch-3.edge refused: "],
    ["go back", "exercise-watch/2 rolled back: an operator went back"],
  ];
  for (const [what, says] of endings) {
    await please(what);
    await page.locator("#outcomes li:first-child", {hasText: says}).waitFor();
  }
  ensure((await page.locator("#outcomes li").count()) === 3, "each update is there once");
  ensure(!(await page.locator("#outcomes").textContent()).includes("no date"), "each has its time");
  const wrong = [...bad];
  await page.context().close();
  for (const [name, viewport, colorScheme] of LOOKS) {
    const look = await open(running, url, {viewport, colorScheme});
    await live(look.page, STREAMS);
    await card(look.page, "mat 3").click();
    await look.page.locator("#drift .bad").nth(1).waitFor();
    wrong.push(...(await faults(look.page)), ...look.bad);
    const place = (part) => `${folder}/page-${part}${name === "desktop" ? "" : `-${name}`}.png`;
    if (name === "desktop" || !folder.endsWith("docs")) {
      await look.page.locator("#drift").screenshot({path: place("drift")});
      await look.page.locator("#history").screenshot({path: place("updates")});
    }
    await look.page.context().close();
  }
  return wrong;
}

// A person labels with the keyboard, blind; asks what the machines said, takes one back, exports, erases.
async function reviewing({running, url, folder}) {
  const expected = (line) => line.includes("404");  // for the case that is gone
  const {page, bad} = await open(running, url, {expected});
  await live(page, STREAMS);
  await page.locator("#to-review").click();
  await page.locator("#case-window polyline").nth(5).waitFor();
  const wrong = await faults(page);
  const text = async (selector) => page.locator(selector).innerText();
  const looked_at = (n) => page.locator("#review-progress", {hasText: new RegExp(`^${n} cases? of`)}).waitFor();
  ensure(!(await text("#review")).includes("The device said"), "answers are hidden at first");
  const id = () => page.evaluate("review.case.id");
  const first = await id();
  await page.keyboard.press("r");
  await page.locator("#case-answers", {hasText: "The device said"}).waitFor();
  ensure(/The cloud (said|has not said)/.test(await text("#case-answers")), "the cloud's answer is there, too");
  await page.keyboard.press("1");
  await looked_at(1);
  await page.waitForFunction((old) => review.case.id !== old, first);
  ensure(!(await text("#review")).includes("The device said"), "the next case is blind again");
  await page.keyboard.press("u");
  await looked_at(0);
  ensure((await id()) === first, "undoing brings the case back");
  for (const [at, key] of ["2", "3", "0", "s"].entries()) {
    await page.keyboard.press(key);
    await looked_at(at + 1);
  }
  await page.locator("#case-choices button", {hasText: "ROW"}).click();
  await looked_at(5);
  const [download] = await Promise.all([page.waitForEvent("download"), page.locator("#review-export").click()]);
  const path = `${folder}/reviewed.csv`;
  await download.saveAs(path);
  wrong.push(...(await faults(page)));
  await page.setViewportSize({width: 1400, height: 940});
  if (folder.endsWith("docs")) await page.screenshot({path: `${folder}/page-review.png`});
  await page.setViewportSize(PHONE);
  const gone = await page.evaluate("review.case.key");
  await page.evaluate((key) => ask("/api/cases/erase", {key}), gone);  // by somebody else, as it were
  await page.keyboard.press("1");
  await page.locator("#review-error", {hasText: "was erased, or made room"}).waitFor();
  ensure((await page.evaluate("review.case.key")) !== gone, "the next case is shown instead");
  wrong.push(...(await faults(page)));
  await page.locator("#erase-key").click();
  wrong.push(...(await faults(page)));
  await page.locator("#erase-key", {hasText: "Press again"}).click();
  await page.locator("#review-done", {hasText: /\d+ cases? erased/}).waitFor();
  await page.locator("#erase-all").click();
  await page.locator("#erase-all", {hasText: "Press again"}).click();
  await page.locator("#review-done", {hasText: "erased"}).waitFor();
  await page.locator("#to-live").click();
  await live(page, STREAMS);
  return [...wrong, ...bad];
}

await main({every_look, drifting_and_updating, reviewing, clicking_and_typing, keyboard_only, tokens, reconnecting});
