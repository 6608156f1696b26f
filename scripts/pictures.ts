/**
 * Makes the pictures of docs/dashboard.md: `npm run pictures [-- FOLDER [MINUTES]]`. A host with two emulated GPUs
 * serves sixty functions for an hour of its clock, which passes in MINUTES. All calls are real, so rates are those of
 * the slow clock and latencies those of the machine. One function breaches its SLO. Three hosts are a fleet; one drains.
 * With a FOLDER, makes every view in every look: wide and narrow, light and dark, each quiet, busy
 * and broken. Needs g++, Chromium and Redis.
 */
import { mkdir, readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import type { Browser, Page } from 'playwright-core';
import { buildArchitecture, writeModel } from '../src/onnx/index.ts';
import { buildEmulatedDriver } from '../test/emulated-driver/build.ts';
import { launchBrowser, openPage, type WatchedPage } from '../test/support/browser.ts';
import { FleetHosts, nameOf, statesAt } from '../test/support/fleet-hosts.ts';
import { writeReluModel } from '../test/support/models.ts';
import { startReluHost, type ReluHost } from '../test/support/relu-host.ts';

const [given = '', minutes = '5'] = process.argv.slice(2);
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
const hourMs = 3_600_000;
/** Name, address, and the element to wait for. */
type View = readonly [name: string, hash: string, waitFor: string];
const views: readonly View[] = [
  ['overview', '#/', '.plot canvas'],
  ['functions', '#/functions', 'tr[data-function]'],
  ['function', '#/functions/invoice-small', '.plot canvas'],
  ['machine', '#/machine', '.plot canvas'],
  ['memory', '#/memory', '.strip li'],
  ['cold-starts', '#/anatomy', 'figure[data-mode=interleave]'],
  ['replay', '#/replay', 'main h2'],
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

/** For a second of the shown hour. */
const callsPerSecond = { least: 0.4, most: 1.6, rush: 4 };

/**
 * Sets `Date.now()` back and returns a function that starts the hour: after its call, an hour passes in `forMs`, and
 * then the clock is right. The host's history, events and logs use this clock; durations come from performance.now(),
 * which is unchanged.
 */
function shownHour(forMs: number): () => void {
  const real = Date.now.bind(Date);
  let beginMs = Infinity;
  const leftShare = (): number => Math.min(1, Math.max(0, 1 - (performance.now() - beginMs) / forMs));
  Date.now = () => real() - (hourMs - forMs) * leftShare();
  return () => (beginMs = performance.now());
}

/**
 * An hour's rhythm in `forMs`: two waves, a few functions called often, most seldom, and a rush on one of them near the
 * end.
 */
async function traffic(url: string, forMs: number, until?: AbortSignal): Promise<void> {
  const random = generator(24);
  const startMs = performance.now();
  // After the hour, calls come in real time.
  const speed = until === undefined ? hourMs / forMs : 1;
  const open = new Set<Promise<void>>();
  const send = (name: string, length?: number): void => {
    const sent = call(url, name, length).catch(() => undefined);
    open.add(sent);
    void sent.finally(() => open.delete(sent));
  };
  const { least, most, rush } = callsPerSecond;
  for (
    let passedMs = 0;
    until === undefined ? passedMs < forMs : !until.aborted;
    passedMs = performance.now() - startMs
  ) {
    const share = until === undefined ? passedMs / forMs : 0;
    const perSecond = (least + most) / 2 + ((most - least) / 2) * Math.sin(share * 4 * Math.PI);
    send(names[Math.floor(names.length * random() ** 3)]!);
    if (share > 0.7 && share < 0.78) for (let extra = 0; extra < rush; extra++) send('invoice-small');
    // A client of an older model, for ten minutes.
    if (share > 0.3 && share < 0.46 && random() < 0.2) send('ocr-small', inputs - 1);
    if (random() < 0.01) await fetch(`${url}/function/spam-small`, { method: 'POST', body: 'no numbers' });
    await sleep((-Math.log(1 - random()) * 1000) / (perSecond * speed));
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
  await opened.page.addInitScript("localStorage.setItem('turntable-range', '1h')");
  return opened;
}

/** Waits until the content is there, and opens reports of replays. */
async function settle(page: Page, waitFor: string): Promise<void> {
  await page.locator(waitFor).first().waitFor();
  await sleep(1500);
  const closed = page.locator('.runs button[aria-pressed=false]');
  for (let left = await closed.count(); left > 0; left--) {
    await closed.first().click();
    await sleep(500);
  }
}

/** Every look of every view while the host answers. */
async function shootAll(browser: Browser, into: string, { url, views: shown, scene }: Shot): Promise<void> {
  for (const look of looks) {
    await using opened = await openLook(browser, url, look);
    const { page } = opened;
    for (const [name, hash, waitFor] of shown) {
      await page.goto(`${url}/${hash}`);
      await settle(page, waitFor);
      await page.screenshot({ path: join(into, `${name}-${scene}${look.name}.png`), fullPage: true });
    }
  }
}

/**
 * The open views when their host ends; each in its own context, since a browser opens only six connections to a host.
 */
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
    await page.locator('p.lost').waitFor();
    await page.screenshot({ path: file, fullPage: true });
    await page.context().close();
  }
}

const heights: Readonly<Record<string, number>> = { functions: 620, fleet: 620, replay: 1250 };

/** The pictures of docs/dashboard.md. */
async function shootDocs(browser: Browser, url: string, shown: readonly View[]): Promise<void> {
  await using opened = await openLook(browser, url, looks[0]!);
  const { page } = opened;
  for (const [name, hash, waitFor] of shown) {
    await page.goto(`${url}/${hash}`);
    await settle(page, waitFor);
    // Sixty rows would make a large picture that shows no more than twenty.
    await page.setViewportSize({ width: 1280, height: heights[name] ?? 900 });
    await page.screenshot({ path: join(docs, `${name}.png`) });
  }
}

async function startHost(): Promise<ReluHost> {
  const host = await startReluHost([], { flags, prepare: addFunctions });
  await host.gpus?.settled();
  console.log(`${names.length} functions at ${host.url}`);
  return host;
}

/** Two policies on the same calls, for the view of replays. */
async function replay(url: string): Promise<void> {
  for (const policy of ['best', 'artifact']) {
    const run = { name: `policy ${policy}`, kind: 'replay', functions: 'bert-base=180', machine: 'p3.8xlarge' };
    const body = JSON.stringify({
      ...run,
      policy,
      arrivals: 'poisson',
      rate: 100,
      requests: 10_000,
      seed: 0,
      slo: '100ms',
    });
    await fetch(`${url}/api/replays`, { method: 'POST', body });
  }
  const isBusy = async (): Promise<boolean> => {
    const { runs } = (await (await fetch(`${url}/api/replays`)).json()) as { runs: { state: string }[] };
    return runs.some(({ state }) => state === 'waiting' || state === 'running');
  };
  while (await isBusy()) await sleep(500);
}

/** A host without calls. */
async function shootQuiet(into: string): Promise<void> {
  await using browser = await launchBrowser();
  await using host = await startHost();
  await shootAll(browser, into, { url: host.url, views, scene: 'quiet' });
}

/** One host with two GPUs, and an hour of calls. */
async function shootHost(): Promise<void> {
  const forMs = Number(minutes) * 60_000;
  const begin = shownHour(forMs);
  const host = await startHost();
  let isUp = true;
  try {
    const { url } = host;
    begin();
    await traffic(url, forMs);
    await replay(url);
    await using browser = await launchBrowser();
    const docsViews = views.filter(([name]) => name !== 'publish');
    // Calls go on while the pictures are taken.
    const stop = new AbortController();
    const load = traffic(url, forMs, stop.signal);
    await shootDocs(browser, url, docsViews);
    if (folder !== undefined) await shootAll(browser, folder, { url, views, scene: 'busy' });
    stop.abort();
    await load;
    if (folder === undefined) return;
    await shootBroken(browser, folder, { url, views, scene: 'broken' }, async () => {
      isUp = false;
      await host[Symbol.asyncDispose]();
    });
  } finally {
    if (isUp) await host[Symbol.asyncDispose]();
  }
}

/** Three hosts, of which one drains; at the end the host that serves the page ends too. */
async function shootFleet(): Promise<void> {
  await using browser = await launchBrowser();
  await using fleet = await FleetHosts.start(3);
  const [first, second] = fleet.hosts as [ReluHost, ReluHost];
  const { url } = first;
  const body = await readFile(await writeReluModel(first.folder));
  const published = names.slice(0, 24);
  for (const name of published) {
    const reply = await fetch(`${url}/functions/${name}?slo=2s`, { method: 'PUT', body });
    if (!reply.ok) throw new Error(await reply.text());
    await call(url, name, 4);
  }
  if (folder !== undefined) await shootAll(browser, folder, { url, views: fleetViews, scene: 'quiet' });
  await fetch(`${url}/v2/fleet/hosts/${encodeURIComponent(nameOf(second))}/drain`, { method: 'POST' });
  while ((await statesAt(first))[nameOf(second)] !== 'draining') await sleep(200);
  await Promise.all(Array.from({ length: 240 }, (_, index) => call(url, published[index % published.length]!, 4)));
  await shootDocs(browser, url, [fleetViews[0]!]);
  if (folder === undefined) return;
  await shootAll(browser, folder, { url, views: fleetViews, scene: 'busy' });
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
if (folder !== undefined) {
  await mkdir(folder, { recursive: true });
  await shootQuiet(folder);
}
await shootHost();
await shootFleet();
