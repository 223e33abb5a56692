// The report of a build; tests/browser/test_report.py drives it. Returns what is wrong: nothing, mostly.
import {PHONE, faults, main, open} from "./browser.mjs";

const LAPTOP = {width: 1280, height: 900};
const SMALLEST = 11;

// Text smaller than can be read, and parts of drawings outside of them, as seen on the screen.
const seen = (page) => page.evaluate((smallest) => {
  const wrong = [];
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  let read = 0;
  while (texts.nextNode()) {
    const one = texts.currentNode, parent = one.parentElement;
    if (!one.data.trim() || parent.closest("title, style")) continue;
    const drawing = parent.closest("svg");
    const scale = drawing ? drawing.getBoundingClientRect().width / drawing.viewBox.baseVal.width : 1;
    const size = parseFloat(getComputedStyle(parent).fontSize) * scale;
    read += 1;
    if (size < smallest) wrong.push(`${size.toFixed(1)} px: ${one.data}`);
  }
  if (read < 200) wrong.push(`read ${read} texts only`);
  let marks = 0;
  for (const drawing of document.querySelectorAll("svg.plot")) {
    const frame = drawing.getBoundingClientRect();
    if (frame.left < 0 || frame.right > innerWidth) wrong.push(`a drawing leaves the screen: ${drawing.textContent.slice(0, 60)}`);
    for (const part of drawing.querySelectorAll("circle, rect, path, text")) {
      const box = part.getBoundingClientRect();
      marks += 1;
      if (box.left < frame.left - 2 || box.right > frame.right + 2 || box.top < frame.top - 2 || box.bottom > frame.bottom + 2) {
        wrong.push(`outside of its drawing: ${part.outerHTML.slice(0, 100)}`);
      }
    }
  }
  if (marks < 100) wrong.push(`looked at ${marks} marks only`);
  const first = document.querySelector("main > *");
  const verdict = first.querySelector(".says").getBoundingClientRect();
  if (first.id !== "verdict" || verdict.bottom > innerHeight) wrong.push("the verdict is not what is seen first");
  return wrong;
}, SMALLEST);

// On a telephone and a laptop, light and dark: axe finds nothing, nothing scrolls to the side, all text can be read.
async function every_look({running, url, folder}) {
  const wrong = [];
  for (const [name, viewport, colorScheme] of [
    ["phone", PHONE, "light"], ["phone-dark", PHONE, "dark"], ["laptop", LAPTOP, "light"], ["laptop-dark", LAPTOP, "dark"],
  ]) {
    const {page, bad} = await open(running, url, {viewport, colorScheme});
    const found = [...bad, ...(await faults(page)), ...(await seen(page))];
    if (name.startsWith("phone")) await page.locator("nav a").last().click();
    if (folder) await page.screenshot({path: `${folder}/report-${name}.png`, fullPage: true});
    wrong.push(...found.map((one) => `${name}: ${one}`));
    await page.context().close();
  }
  return wrong;
}

await main({every_look});
