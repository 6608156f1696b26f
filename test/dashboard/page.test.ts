/** The dashboard in a real browser against a real host with live load. */
import { copyFile, readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { Browser, Page } from 'playwright-core';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { pageWith } from '../../src/cli/replay/output.ts';
import { ReportBuilder } from '../../src/replay/index.ts';
import { comparisonOf } from '../../src/report/index.ts';
import { turntableHere } from '../cli/in-process.ts';
import { hasBrowser, launchBrowser, openPage } from '../support/browser.ts';
import { FleetHosts, nameOf, statesAt } from '../support/fleet-hosts.ts';
import { writeReluModel } from '../support/models.ts';
import { redisMissing } from '../support/redis-server.ts';
import { startReluHost, type ReluHost } from '../support/relu-host.ts';

/** Folder for pictures of the views; those in docs/ are made by setting it to that folder. */
const screenshots = process.env['TURNTABLE_SCREENSHOTS'];
const views = [
  ['overview', '#/'],
  ['functions', '#/functions'],
  ['function', '#/functions/relu'],
  ['machine', '#/machine'],
  ['memory', '#/memory'],
  ['cold-starts', '#/anatomy'],
  ['reports', '#/reports'],
  ['publish', '#/publish'],
] as const;

let host: ReluHost;
let browser: Browser;

describe.skipIf(!hasBrowser)('the dashboard in Chromium', () => {
  beforeAll(async () => {
    host = await startReluHost(['relu', 'never-called']);
    browser = await launchBrowser();
  });

  afterAll(async () => {
    await browser?.close();
    await host?.[Symbol.asyncDispose]();
  });

  it('the dashboard in Chromium shows on every view the counts of /metrics', async () => {
    await using opened = await openPage(browser, host.url);
    const { page, complaints } = opened;
    await page.goto(`${host.url}/#/`);
    await Promise.all(Array.from({ length: 20 }, () => call('relu', '10m')));
    await Promise.all(Array.from({ length: 5 }, () => call('relu', '0.001ms')));
    await sayOfTile(page, 'offered', '25 invocations');

    const counted = await outcomes('relu');
    expect(counted).toEqual({ in_slo: 20, late: 5, shed: 0, failed: 0 });
    await sayOfTile(page, 'goodput', '80.0% of what ended met its SLO');
    await sayOfTile(page, 'missed', '5 late, 0 shed, 0 failed');
    await page.getByRole('heading', { name: '1 of 2 functions misses its SLO' }).waitFor();
    const worst = page.locator('.trouble li[data-function=relu]');
    await worst.getByText('within 5 s; 5 of 25 missed').waitFor();

    await page.goto(`${host.url}/#/functions`);
    const row = page.locator('tr[data-function=relu]');
    await row.locator('td').nth(2).getByText('80.0%').waitFor();
    expect(await row.locator('td').first().textContent()).toBe('cpu');
    expect(await page.locator('tr[data-function=never-called] td').nth(2).textContent()).toBe('–');

    await page.goto(`${host.url}/#/functions/relu`);
    await sayOfTile(page, 'f-goodput', '20 within 5 s');
    await page.getByText('Distribution of latency, 25 answers').waitFor();

    await page.goto(`${host.url}/#/memory`);
    const hostMemory = page.getByRole('region', { name: 'Sessions on CPU cores' });
    await hostMemory.getByText(/^(All \d+ entries|The only entry)/).click();
    await hostMemory
      .getByRole('cell', { name: /^process \d+ of the CPU pool/ })
      .first()
      .waitFor();
    expect(complaints).toEqual([]);
  });

  it('the dashboard in Chromium shows an SLO breach and a killed instance by itself, with no further request', async () => {
    await using opened = await openPage(browser, host.url);
    const { page, complaints } = opened;
    await page.goto(`${host.url}/#/`);
    await page.locator('.connection.on').waitFor();
    const causes: readonly [kind: string, cause: () => Promise<void>][] = [
      ['slo-breach', () => call('relu', '0.001ms')],
      ['instance-died', killInstance],
    ];
    for (const [kind, cause] of causes) {
      const before = await eventsShown(page, kind);
      // The stream that is open brings it, and no answer that the page asks for every few seconds.
      await page.route('**/api/**', (route) => route.abort());
      await cause();
      await expect.poll(() => eventsShown(page, kind), { interval: 20 }).toBeGreaterThan(before);
      await page.unrouteAll();
    }
    expect(complaints.filter((text) => !text.includes('ERR_FAILED'))).toEqual([]);
  });

  it('the dashboard in Chromium says that the host does not answer, and greys out old data', async () => {
    const dying = await startReluHost(['relu']);
    try {
      await using opened = await openPage(browser, dying.url);
      const { page } = opened;
      await page.goto(`${dying.url}/#/machine`);
      await page.locator('#tile-m-cores').getByText('models may use 2').waitFor();
      await page.locator('.connection.on').waitFor();
      await dying[Symbol.asyncDispose]();
      await page.getByRole('alert').getByText('has not answered since').waitFor();
      expect(await page.locator('main.stale').count()).toBe(1);
      await page.goto(`${dying.url}/#/functions`);
      await page.getByText(/^the host at \S+ does not answer$/).waitFor();
      expect(await page.getByText('Failed to fetch').count()).toBe(0);
    } finally {
      await dying[Symbol.asyncDispose]();
    }
  });

  it('publishes a model, calls it, and removes it', async () => {
    const model = await writeReluModel(host.folder, 3);
    await using opened = await openPage(browser, host.url);
    const { page, complaints } = opened;
    await page.goto(`${host.url}/#/publish`);
    await page.getByLabel('Name').fill('uploaded');
    await page.getByLabel('Model (.onnx)').setInputFiles(model);
    await page.getByLabel('SLO').fill('250ms');
    await page.getByRole('button', { name: 'Publish' }).click();
    await page.getByRole('heading', { name: 'uploaded version 1' }).waitFor();

    await page.getByLabel('Body of the request').fill('{"input": [[-1, 2, -3]]}');
    await page.getByRole('button', { name: 'Call', exact: true }).click();
    expect(JSON.parse((await page.locator('#try-answer').textContent())!)).toEqual({ output: [[0, 2, 0]] });
    await page.getByText('cpu pool', { exact: false }).first().waitFor();
    const curl = await page.locator('.answer pre').last().textContent();
    expect(curl).toBe(
      `curl -s -H 'Content-Type: application/json' --data-binary '{"input": [[-1, 2, -3]]}' ${host.url}/function/uploaded`,
    );

    await page.getByLabel('Body of the request').fill('{"input": [[1]]}');
    await page.getByRole('button', { name: 'Call', exact: true }).click();
    await page.getByRole('alert').filter({ hasText: /'x'/ }).waitFor();

    await page.getByRole('button', { name: 'Pin', exact: true }).click();
    await page.getByText('Pinned: done').waitFor();
    const pinned = (await (await fetch(`${host.url}/functions/uploaded`)).json()) as object;
    expect(pinned).toMatchObject({ version: '1', pinned: true, slo: '250ms' });

    page.on('dialog', (dialog) => void dialog.accept());
    await page.getByRole('button', { name: 'Remove' }).click();
    await page.getByRole('heading', { name: 'Functions' }).waitFor();
    expect((await fetch(`${host.url}/functions/uploaded`)).status).toBe(404);
    expect(complaints.filter((complaint) => !isExpected(complaint))).toEqual([]);
  });

  it('the dashboard in Chromium shows reports of the command line from files, replays side by side, and closes them', async () => {
    const load = '--poisson 250 --requests 1000 --functions bert-base=4'.split(' ');
    const file = async (name: string, ...words: string[]): Promise<string> => {
      const path = join(host.folder, name);
      expect(await turntableHere([...words, ...load, '--json', path])).toMatchObject({ exitCode: 0 });
      return path;
    };
    const one = await file('one.json', 'replay', '--machine', 'p3.8xlarge');
    const other = join(host.folder, 'other.json');
    await copyFile(one, other);
    const needed = await file('needed.json', 'plan', 'capacity', '--goodput', '90%', '--hosts-max', '1');
    await using opened = await openPage(browser, host.url);
    const { page, complaints } = opened;
    await page.goto(`${host.url}/#/reports`);
    await page.getByLabel('Open reports:').setInputFiles([one, other, needed]);
    await page.getByRole('heading', { name: 'Side by side' }).waitFor();
    const { verdict } = JSON.parse(await readFile(one, 'utf8')) as { verdict: string };
    expect(await page.getByText(verdict).count()).toBe(2);
    expect(await page.locator('table.compare thead').textContent()).toContain('simulated, machine preset p3.8xlarge');
    await page.getByText(/^None wins: one.json and other.json differ by no more than the noise/).waitFor();
    await page.getByText(/^p3\.8xlarge: 3 GPUs for .* 2 GPUs reach .*: the GPUs' time ran out/).waitFor();
    expect(await page.getByRole('row', { name: /^p3\.8xlarge 2 GPUs/ }).count()).toBe(1);

    await page.getByRole('button', { name: 'Close other.json' }).click();
    await page.getByRole('button', { name: 'Close needed.json' }).click();
    await page.getByRole('heading', { name: 'Report', exact: true }).waitFor();
    expect(complaints).toEqual([]);
  });

  it('the dashboard in Chromium shows a report from a file that --html wrote, without a host and in the colours of the system', async () => {
    const builder = new ReportBuilder();
    for (let index = 0; index < 20; index++) {
      const placement = { kind: 'gpu', gpu: 0, residency: index === 0 ? 'cold' : 'warm' } as const;
      const [arrivalMs, endMs] = [index * 500, index * 500 + 9 + index];
      builder.outcome({ sequence: index, functionIndex: 0, arrivalMs, endMs, queueMs: 0, sloMs: 20, placement });
    }
    const name = '</script><b>&"$&';
    const report = builder.finish({ kind: 'measured', machine: name, seed: 1, settings: {}, functionNames: [name] });
    const compared = comparisonOf([
      { name: 'one', reports: [report] },
      { name: 'other', reports: [report] },
    ]);
    for (const [file, data, text] of [
      ['report.html', report, report.verdict!],
      ['comparison.html', compared, compared.verdict],
    ] as const) {
      await writeFile(join(host.folder, file), pageWith(data));
      await using opened = await openPage(browser, 'file:', { colorScheme: 'dark' });
      const { page, complaints } = opened;
      await page.goto(`file://${join(host.folder, file)}`);
      await page.locator('p.verdict', { hasText: text }).waitFor();
      await page.locator('.plot canvas').first().waitFor();
      expect(await page.locator('table.compare').textContent()).toContain(`measured on ${name}`);
      expect(await page.locator('html').getAttribute('data-theme')).toBe('dark');
      expect(complaints).toEqual([]);
    }
  });

  it.skipIf(redisMissing !== undefined)(
    'the dashboard in Chromium shows the hosts of a fleet and the homes of a function',
    async () => {
      await using fleet = await FleetHosts.start(2);
      const [one, other] = fleet.hosts.map(nameOf) as [string, string];
      const [{ url, folder }] = fleet.hosts as [ReluHost, ReluHost];
      await using opened = await openPage(browser, url);
      const { page, complaints } = opened;
      await page.goto(`${url}/#/`);
      await page.getByRole('link', { name: 'Fleet' }).click();
      await page.locator(`tr[data-note="${one}"]`).getByText('this page is of it').waitFor();
      await page.getByRole('heading', { name: 'lab: 2 hosts up' }).waitFor();

      const model = new Uint8Array(await readFile(await writeReluModel(folder, 3)));
      const publish = async (): Promise<number> =>
        (await fetch(`${url}/functions/shared`, { method: 'PUT', body: model })).status;
      // On a busy machine the other host may not have the file yet.
      await expect.poll(publish).toBe(201);
      await page.goto(`${url}/#/functions/shared`);
      await page.locator('tr[data-home]').getByText('first').waitFor();

      await page.goto(`${url}/#/fleet`);
      const row = page.locator(`tr[data-host="${other}"]`);
      const questions: string[] = [];
      const answer = (accept: boolean) =>
        page.once('dialog', (dialog) => {
          questions.push(dialog.message());
          void (accept ? dialog.accept() : dialog.dismiss());
        });
      answer(false);
      await row.getByRole('button', { name: 'Drain' }).click();
      expect(questions).toEqual([expect.stringMatching(new RegExp(`^Drain ${other}\\? .* 1 other host is up\\.$`))]);
      expect(await statesAt({ url })).toEqual({ [one]: 'up', [other]: 'up' });
      answer(true);
      await row.getByRole('button', { name: 'Drain' }).click();
      await page.getByText(`${other} drains: done`).waitFor();
      await page.getByRole('heading', { name: 'lab: 1 of 2 hosts drains' }).waitFor();
      await page.locator(`tr[data-host="${other}"] .state.draining`).waitFor();
      await page.goto(`${url}/#/functions/shared`);
      await page.locator(`tr[data-home="${one}"]`).getByText('first').waitFor();
      await page.goto(`${url}/#/fleet`);
      await row.getByRole('button', { name: 'Take back' }).click();
      await page.getByRole('heading', { name: 'lab: 2 hosts up' }).waitFor();
      expect(complaints).toEqual([]);
    },
  );

  it('the dashboard in Chromium asks for the API key once if the host has one', async () => {
    await using locked = await startReluHost(['relu'], { apiKeys: ['secret-key-of-the-test'] });
    await using opened = await openPage(browser, locked.url);
    const { page } = opened;
    await page.goto(`${locked.url}/#/functions/relu`);
    await page.getByRole('button', { name: 'Preload' }).click();
    await page.getByRole('textbox', { name: 'API key' }).fill('secret-key-of-the-test');
    await page.getByRole('button', { name: 'Use it' }).click();
    await page.getByText('Preloaded: done').waitFor();
    await page.getByRole('button', { name: 'Unload' }).click();
    await page.getByText('Unloaded: done').waitFor();
    expect(await page.locator('dialog').count()).toBe(0);
  });

  it.each([
    ['light', 1280],
    ['dark', 1280],
    ['light', 400],
  ] as const)(
    'draws every view in %s colours at %i pixels: nothing cut off, nothing without a name',
    async (colorScheme, width) => {
      await using opened = await openPage(browser, host.url, { colorScheme, viewport: { width, height: 900 } });
      const { page, complaints } = opened;
      for (const [name, hash] of views) {
        await page.goto(`${host.url}/${hash}`);
        await page.locator('main h1').waitFor();
        if (name === 'cold-starts') await page.locator('figure[data-mode=interleave]').waitFor();
        if (name === 'overview' || name === 'function') await page.locator('.plot canvas').first().waitFor();
        expect(await page.evaluate<number>('document.documentElement.scrollWidth - innerWidth')).toBeLessThanOrEqual(0);
        expect(await namelessControls(page)).toEqual([]);
        if (screenshots !== undefined && width === 1280) {
          await page.screenshot({
            path: join(screenshots, colorScheme === 'light' ? `${name}.png` : `${name}-dark.png`),
          });
        }
      }
      expect(complaints).toEqual([]);
    },
  );

  it('visits all views by the keyboard alone', async () => {
    await using opened = await openPage(browser, host.url);
    const { page } = opened;
    await page.goto(`${host.url}/#/`);
    await page.locator('main h1').waitFor();
    const reached: string[] = [];
    for (let press = 0; press < 8; press++) {
      await page.keyboard.press('Tab');
      reached.push(await page.evaluate<string>("document.activeElement?.textContent?.trim() ?? ''"));
    }
    expect(reached.slice(0, 6)).toEqual([
      'Skip to the content',
      'Overview',
      'Functions',
      'Machine',
      'Memory',
      'Cold starts',
    ]);
    await page.getByRole('link', { name: 'Memory' }).press('Enter');
    await page.getByRole('heading', { name: 'Memory', level: 1 }).waitFor();
    expect(await page.evaluate<string>('document.activeElement?.id')).toBe('main');
  });
});

async function call(name: string, slo: string): Promise<void> {
  const response = await fetch(`${host.url}/function/${name}`, {
    method: 'POST',
    body: '{"input":[[1,2,3,4]]}',
    headers: { 'X-Turntable-SLO': slo },
  });
  await response.arrayBuffer();
  expect(response.status).toBe(200);
}

/** The counts of a function's invocations in `/metrics`. */
async function outcomes(name: string): Promise<Record<string, number>> {
  const text = await (await fetch(`${host.url}/metrics`)).text();
  return Object.fromEntries(
    [...text.matchAll(/^turntable_goodput_total\{function="([^"]+)",outcome="([^"]+)"\} (\d+)$/gm)]
      .filter(([, of]) => of === name)
      .map(([, , outcome, count]) => [outcome, Number(count)]),
  );
}

async function instanceOf(name: string): Promise<number> {
  const { host: tier } = (await (await fetch(`${host.url}/api/memory`)).json()) as {
    host: { sessions: { functionName: string; why: string }[] };
  };
  const why = tier.sessions.find(({ functionName }) => functionName === name)?.why ?? '';
  return Number(/^process (\d+)/.exec(why)?.[1]);
}

/** The browser reports the refused call, and a request for the function's figures that crossed with its removal. */
const isExpected = (complaint: string): boolean =>
  / 400 /.test(complaint) || (/ 404 /.test(complaint) && /\/api\/functions\/uploaded\b/.test(complaint));

async function killInstance(): Promise<void> {
  await call('relu', '10m');
  process.kill(await instanceOf('relu'), 'SIGKILL');
}

/** Number of events of a kind; each row counts for several. */
async function eventsShown(page: Page, kind: string): Promise<number> {
  const rows = `document.querySelectorAll('li[data-kind=${kind}]')`;
  return await page.evaluate<number>(`[...${rows}].reduce((sum, row) => sum + Number(row.dataset.count), 0)`);
}

async function sayOfTile(page: Page, tile: string, text: string): Promise<void> {
  await page.locator(`#tile-${tile}`).getByText(text, { exact: true }).waitFor();
}

/** Controls that a screen reader could only call 'button'. */
async function namelessControls(page: Page): Promise<string[]> {
  return await page.evaluate<string[]>(`
    [...document.querySelectorAll('button, a, input, select, textarea')]
      .filter((element) => {
        const labels = [...(element.labels ?? [])].map((label) => label.textContent);
        const names = [element.getAttribute('aria-label'), element.textContent, ...labels];
        return !names.some((name) => name !== null && name.trim() !== '');
      })
      .map((element) => element.outerHTML.slice(0, 120))`);
}
