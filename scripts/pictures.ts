/**
 * Makes the pictures of docs/dashboard.md: `npm run pictures [-- FOLDER [MINUTES]]`. A host with two emulated GPUs serves sixty
 * functions while an hour's rhythm of calls goes by in a few minutes, with one breach; three hosts are a fleet. With a FOLDER,
 * every view in every look: wide and narrow, light and dark, each quiet, busy and broken. Needs g++, Chromium and Redis.
 */
import { mkdir, readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import type { Browser } from 'playwright-core';
import { buildArchitecture, writeModel } from '../src/onnx/index.ts';
import { buildEmulatedDriver } from '../test/emulated-driver/build.ts';
import { launchBrowser, openPage, type WatchedPage } from '../test/support/browser.ts';
import { FleetHosts, nameOf } from '../test/support/fleet-hosts.ts';
import { writeReluModel } from '../test/support/models.ts';
import { startReluHost, type ReluHost } from '../test/support/relu-host.ts';

const [given = '', minutes = '4'] = process.argv.slice(2);
const folder = given === '' ? undefined : given;
const docs = join(import.meta.dirname, '..', 'docs', 'dashboard');
const subjects = [
  'spam',
  'churn',
  'fraud',
  'price',
  'demand',
  'sentiment',
  'topic',
  'intent',
  'ocr',
  'invoice',
  'face',
  'gesture',
];
const kinds = ['small', 'base', 'large', 'eu', 'us'];
const names = kinds.flatMap((kind) => subjects.map((subject) => `${subject}-${kind}`));
const widths = [128, 192, 256, 384, 512];
const inputs = 64;
/** Name, address, and what is there when there is something to see. */
type View = readonly [name: string, hash: string, waitFor: string];
const views: readonly View[] = [
  ['overview', '#/', '.plot canvas'],
  ['functions', '#/functions', 'tr[data-function]'],
  ['function', '#/functions/invoice-small', '.plot canvas'],
  ['machine', '#/machine', '.plot canvas'],
  ['memory', '#/memory', '.strip li'],
  ['cold-starts', '#/anatomy', 'figure[data-mode=interleave]'],
  ['replay', '#/replay', 'main h1'],
  ['publish', '#/publish', 'main h1'],
];
const fleetViews: readonly View[] = [
  ['fleet', '#/fleet', 'tr[data-host]'],
  ['fleet-function', '#/functions/invoice-small', 'tr[data-home]'],
];

/** The same scene each time. */
function generator(seed: number): () => number {
  let state = seed;
  return () => {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0;
    return state / 2 ** 32;
  };
}

async function addFunctions(functions: string): Promise<void> {
  for (const [index, name] of names.entries()) {
    const place = join(functions, name);
    await mkdir(place, { recursive: true });
    const hidden = widths[index % widths.length]!;
    const settings = { layers: 4, input: inputs, hidden, output: 16, batch: 0 };
    await writeModel(buildArchitecture('mlp', settings, index + 1).model, join(place, 'model.onnx'));
    const slo = name === 'invoice-small' ? '40ms' : '2s';
    const description = `Scores ${name.replace('-', ', ')}`;
    await writeFile(join(place, 'function.json'), JSON.stringify({ model: 'model.onnx', slo, description }));
  }
}

async function call(url: string, name: string, length = inputs): Promise<void> {
  const body = JSON.stringify({ input: [Array.from({ length }, (_, index) => index / length)] });
  const response = await fetch(`${url}/function/${name}`, { method: 'POST', body });
  await response.arrayBuffer();
}

/** An hour's rhythm in `forMs`: two waves, a few functions often, most seldom, and a rush on one of them near the end. */
async function traffic(url: string, forMs: number, until?: AbortSignal): Promise<void> {
  const random = generator(24);
  const startMs = performance.now();
  const open = new Set<Promise<void>>();
  const send = (name: string): void => {
    const sent = call(url, name).catch(() => undefined);
    open.add(sent);
    void sent.finally(() => open.delete(sent));
  };
  for (
    let passedMs = 0;
    until === undefined ? passedMs < forMs : !until.aborted;
    passedMs = performance.now() - startMs
  ) {
    const share = (passedMs / forMs) % 1;
    const perSecond = 14 + 9 * Math.sin(share * 4 * Math.PI);
    send(names[Math.floor(names.length * random() ** 3)]!);
    if (share > 0.7 && share < 0.78) for (let extra = 0; extra < 7; extra++) send('invoice-small');
    if (random() < 0.01) await fetch(`${url}/function/spam-small`, { method: 'POST', body: 'no numbers' });
    await sleep((-Math.log(1 - random()) * 1000) / perSecond);
  }
  await Promise.all(open);
}

/** `scene` is part of the files' names. */
interface Shot {
  readonly url: string;
  readonly views: readonly View[];
  readonly scene: string;
}

const looks = ([1280, 400] as const).flatMap((width) =>
  (['light', 'dark'] as const).map((colorScheme) => ({
    colorScheme,
    width,
    name: `${width === 400 ? '-400' : ''}${colorScheme === 'dark' ? '-dark' : ''}`,
  })),
);

async function openLook(browser: Browser, url: string, { colorScheme, width }: (typeof looks)[number]) {
  const opened = await openPage(browser, url, { colorScheme, viewport: { width, height: 900 } });
  await opened.page.addInitScript("localStorage.setItem('turntable-range', '5m')");
  return opened;
}

/** Every look of every view while the host answers. */
async function shootAll(browser: Browser, into: string, { url, views: shown, scene }: Shot): Promise<void> {
  for (const look of looks) {
    await using opened = await openLook(browser, url, look);
    const { page } = opened;
    for (const [name, hash, waitFor] of shown) {
      await page.goto(`${url}/${hash}`);
      const awaited = scene === 'quiet' ? 'main h1' : waitFor;
      await page.locator(awaited).first().waitFor();
      await sleep(1500);
      await page.screenshot({ path: join(into, `${name}-${scene}${look.name}.png`), fullPage: true });
    }
  }
}

/** The views that are open, while their host goes; each in a context of its own, since a browser opens six connections to a host. */
async function shootBroken(browser: Browser, into: string, shot: Shot, end: () => Promise<void>): Promise<void> {
  const open: (WatchedPage & { readonly file: string })[] = [];
  for (const look of looks) {
    for (const [name, hash, waitFor] of shot.views) {
      const opened = await openLook(browser, shot.url, look);
      await opened.page.goto(`${shot.url}/${hash}`);
      await opened.page.locator(waitFor).first().waitFor();
      await opened.page.locator('.connection.on').waitFor();
      open.push({ ...opened, file: join(into, `${name}-${shot.scene}${look.name}.png`) });
    }
  }
  await end();
  for (const { page, file } of open) {
    await page.locator('.lost').waitFor();
    await page.screenshot({ path: file, fullPage: true });
    await page.context().close();
  }
}

/** Those of docs/dashboard.md. */
async function shootDocs(browser: Browser, url: string, shown: readonly View[]): Promise<void> {
  await using opened = await openLook(browser, url, looks[0]!);
  const { page } = opened;
  for (const [name, hash, waitFor] of shown) {
    await page.goto(`${url}/${hash}`);
    await page.locator(waitFor).first().waitFor();
    await sleep(1500);
    // Sixty rows are a large picture, and no more to see than twenty.
    await page.setViewportSize({ width: 1280, height: name === 'functions' ? 620 : name === 'fleet' ? 420 : 900 });
    await page.screenshot({ path: join(docs, `${name}.png`) });
  }
}

/** One host with two GPUs. */
async function shootHost(browser: Browser): Promise<void> {
  const host = await startReluHost([], { flags, prepare: addFunctions });
  let isUp = true;
  try {
    await host.gpus?.settled();
    console.log(`${names.length} functions at ${host.url}`);
    const { url } = host;
    if (folder !== undefined) await shootAll(browser, folder, { url, views, scene: 'quiet' });
    await traffic(url, Number(minutes) * 60_000);
    await shootDocs(
      browser,
      url,
      views.filter(([name]) => name !== 'publish'),
    );
    if (folder === undefined) return;
    // Calls come for as long as the pictures are taken.
    const stop = new AbortController();
    const load = traffic(url, Number(minutes) * 60_000, stop.signal);
    await shootAll(browser, folder, { url, views, scene: 'busy' });
    stop.abort();
    await load;
    await shootBroken(browser, folder, { url, views, scene: 'broken' }, async () => {
      isUp = false;
      await host[Symbol.asyncDispose]();
    });
  } finally {
    if (isUp) await host[Symbol.asyncDispose]();
  }
}

/** Three hosts; in the end one drains, one is gone, and then the one whose page it is. */
async function shootFleet(browser: Browser): Promise<void> {
  await using fleet = await FleetHosts.start(3);
  const [first, second, third] = fleet.hosts as [ReluHost, ReluHost, ReluHost];
  const { url } = first;
  const body = await readFile(await writeReluModel(first.folder));
  for (const name of ['invoice-small', 'spam-base', 'churn-eu', 'ocr-large']) {
    // The other hosts may not have heard of each other yet.
    while (!(await fetch(`${url}/functions/${name}?slo=2s`, { method: 'PUT', body })).ok) await sleep(500);
    await call(url, name, 4);
  }
  if (folder !== undefined) await shootAll(browser, folder, { url, views: fleetViews, scene: 'quiet' });
  await fetch(`${url}/v2/fleet/hosts/${encodeURIComponent(nameOf(second))}/drain`, { method: 'POST' });
  const calls = Array.from({ length: 200 }, (_, index) =>
    call(url, index % 3 === 0 ? 'spam-base' : 'invoice-small', 4),
  );
  await Promise.all(calls);
  await shootDocs(browser, url, [fleetViews[0]!]);
  if (folder === undefined) return;
  await shootAll(browser, folder, { url, views: fleetViews, scene: 'busy' });
  await fleet.stop(third);
  await shootBroken(browser, folder, { url, views: fleetViews, scene: 'broken' }, () => fleet.stop(first));
}

const driver = await buildEmulatedDriver();
if (driver === undefined) throw new Error('the pictures need g++, for the emulated GPUs');
const device = { memoryBytes: 64 << 20 };
Object.assign(process.env, driver.environment, { TURNTABLE_EMULATOR: JSON.stringify({ devices: [device, device] }) });
const flags = {
  'gpu.memory': '12MiB',
  'gpu.hostMemory': '512MiB',
  'gpu.profileIterations': '1',
  'cpu.profiling': 'off',
  'cpu.idle': '30s',
};
const browser = await launchBrowser();
try {
  if (folder !== undefined) await mkdir(folder, { recursive: true });
  await shootHost(browser);
  await shootFleet(browser);
} finally {
  await browser.close();
}
