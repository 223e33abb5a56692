// Pages of the documentation; tests/browser/test_site.py drives it. Returns what is wrong: nothing, mostly.
import {PHONE, main, open} from "./browser.mjs";

const LAPTOP = {width: 1280, height: 900};
const visible = (page) => page.evaluate(() => ({
  wide: document.documentElement.scrollWidth - window.innerWidth,
  cut: [...document.querySelectorAll("article :is(p, li, h1, h2, h3, img)")]
    .filter((one) => !one.closest(".md-typeset__scrollwrap") && one.getBoundingClientRect().right > window.innerWidth + 1)
    .map((one) => one.outerHTML.slice(0, 80)),
  broken: [...document.images].filter((one) => one.complete && !one.naturalWidth).map((one) => one.src),
}));

// Every page of the overview, at the width of a phone and of a laptop, light and dark.
async function every_page({running, url}) {
  const wrong = [];
  for (const [viewport, colorScheme] of [[PHONE, "dark"], [LAPTOP, "light"]]) {
    const {page, bad} = await open(running, `${url}/index.html`, {viewport, colorScheme});
    const overview = await (await page.request.get(`${url}/llms.txt`)).text();
    const paths = [...overview.matchAll(/\]\(([^)]+\.html)\):/g)].map((match) => match[1]);
    if (paths.length < 40) wrong.push(`the overview has ${paths.length} pages`);
    for (const path of paths) {
      await page.goto(`${url}/${path}`);
      const {wide, cut, broken} = await visible(page);
      if (wide > 0) wrong.push(`${path} at ${viewport.width} px scrolls ${wide} px to the side`);
      wrong.push(...cut.map((one) => `${path} at ${viewport.width} px cuts ${one}`), ...broken.map((one) => `${path}: ${one}`));
    }
    wrong.push(...bad);
    await page.context().close();
  }
  return wrong;
}

// What is typed into the search is found, without another host.
async function searching({running, url}) {
  const {page, bad} = await open(running, `${url}/index.html`, {viewport: LAPTOP});
  await page.locator("input[name=query]").fill("latency_budget_ms");
  await page.locator(".md-search-result__link[href*='configuration.html?h=latency_budget_ms']").waitFor();
  return bad;
}

await main({every_page, searching});
