/**
 * Makes the pictures of docs/dashboard.md: `npm run pictures [-- FOLDER [MINUTES]]`. A host with two emulated GPUs serves sixty
 * functions while an hour's rhythm of calls goes by in a few minutes, with one breach. With a FOLDER, every view in every look:
 * wide and narrow, light and dark, quiet, busy and without the host. Needs g++ and Chromium.
 */
import { mkdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import type { Browser } from 'playwright-core';
import { buildArchitecture, writeModel } from '../src/onnx/index.ts';
import { buildEmulatedDriver } from '../test/emulated-driver/build.ts';
import { launchBrowser, openPage } from '../test/support/browser.ts';
import { startReluHost, type ReluHost } from '../test/support/relu-host.ts';

const [folder, minutes = '4'] = process.argv.slice(2);
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
const views = [
  ['overview', '#/', '.plot canvas'],
  ['functions', '#/functions', 'tr[data-function]'],
  ['function', '#/functions/invoice-small', '.plot canvas'],
  ['machine', '#/machine', '.plot canvas'],
  ['memory', '#/memory', '.strip li'],
  ['cold-starts', '#/anatomy', 'figure[data-mode=interleave]'],
  ['replay', '#/replay', 'main h1'],
  ['publish', '#/publish', 'main h1'],
] as const;

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

async function call(url: string, name: string): Promise<void> {
  const body = JSON.stringify({ input: [Array.from({ length: inputs }, (_, index) => index / inputs)] });
  const response = await fetch(`${url}/function/${name}`, { method: 'POST', body });
  await response.arrayBuffer();
}

/** An hour's rhythm in `forMs`: two waves, a few functions often, most seldom, and a rush on one of them near the end. */
async function traffic(url: string, forMs: number): Promise<void> {
  const random = generator(24);
  const startMs = performance.now();
  const open = new Set<Promise<void>>();
  const send = (name: string): void => {
    const sent = call(url, name).catch(() => undefined);
    open.add(sent);
    void sent.finally(() => open.delete(sent));
  };
  for (let passedMs = 0; passedMs < forMs; passedMs = performance.now() - startMs) {
    const share = passedMs / forMs;
    const perSecond = 14 + 9 * Math.sin(share * 4 * Math.PI);
    send(names[Math.floor(names.length * random() ** 3)]!);
    if (share > 0.7 && share < 0.78) for (let extra = 0; extra < 7; extra++) send('invoice-small');
    if (random() < 0.01) await fetch(`${url}/function/spam-small`, { method: 'POST', body: 'no numbers' });
    await sleep((-Math.log(1 - random()) * 1000) / perSecond);
  }
  await Promise.all(open);
}

async function shoot(
  browser: Browser,
  url: string,
  into: string,
  look: string,
  broken?: () => Promise<void>,
): Promise<void> {
  const [colorScheme, width] = [
    look.includes('dark') ? ('dark' as const) : ('light' as const),
    look.includes('400') ? 400 : 1280,
  ];
  await using opened = await openPage(browser, url, { colorScheme, viewport: { width, height: 900 } });
  const { page } = opened;
  await page.addInitScript("localStorage.setItem('turntable-range', '5m')");
  for (const [name, hash, waitFor] of views) {
    if (into === docs && name === 'publish') continue; // The page does not show it.
    await page.goto(`${url}/${hash}`);
    await page
      .locator(look.includes('quiet') ? 'main h1' : waitFor)
      .first()
      .waitFor();
    await sleep(1500);
    if (broken !== undefined) {
      await broken();
      await page.locator('.lost').waitFor();
    }
    // Sixty rows are a large picture, and no more to see than twenty.
    if (into === docs) await page.setViewportSize({ width, height: name === 'functions' ? 620 : 900 });
    await page.screenshot({ path: join(into, `${name}${look}.png`), fullPage: into !== docs });
    if (broken !== undefined) return;
  }
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
const host: ReluHost = await startReluHost([], { flags, prepare: addFunctions });
const browser = await launchBrowser();
let isUp = true;
try {
  await host.gpus?.settled();
  console.log(`${names.length} functions at ${host.url}`);
  if (folder !== undefined) {
    await mkdir(folder, { recursive: true });
    await shoot(browser, host.url, folder, '-quiet');
    await shoot(browser, host.url, folder, '-quiet-400-dark');
  }
  await traffic(host.url, Number(minutes) * 60_000);
  await shoot(browser, host.url, docs, '');
  if (folder !== undefined) {
    for (const look of ['-dark', '-400', '-400-dark', '-full']) await shoot(browser, host.url, folder, look);
    await shoot(browser, host.url, folder, '-broken', async () => {
      isUp = false;
      await host[Symbol.asyncDispose]();
    });
  }
} finally {
  await browser.close();
  if (isUp) await host[Symbol.asyncDispose]();
}
