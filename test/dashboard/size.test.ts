/** The cost of the page: its bytes, the time to draw much content, and the host's time while it is open. */
import { brotliCompressSync, gzipSync } from 'node:zlib';
import type { Browser } from 'playwright-core';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { functionVersion } from '../host/fake-store.ts';
import { startTestHost, type TestHost } from '../host/test-host.ts';
import { hasBrowser, launchBrowser, openPage } from '../support/browser.ts';
import { ranOnCpu } from '../support/ran-on-cpu.ts';

const functions = 500;
const hourMs = 3_600_000;

/** 500 functions with an hour of traffic: 200,000 invocations. */
async function busyHost(): Promise<TestHost> {
  const host = await startTestHost({ logLevel: 'silent' });
  const nowMs = performance.now();
  for (let index = 0; index < functions; index++) host.store.put(functionVersion(`function-${index}`));
  for (let count = 0; count < 200_000; count++) {
    const latencyMs = 5 + ((count * 7919) % 120);
    host.history.record({
      functionName: `function-${(count * 31) % functions}`,
      version: '1',
      arrivalMs: nowMs - 0.99 * hourMs + (count * 0.99 * hourMs) / 200_000,
      latencyMs,
      sloMs: 100,
      outcome: latencyMs <= 100 ? 'in_slo' : 'late',
      ran: ranOnCpu({ loadMs: 3, inferMs: latencyMs }, count % 97 === 0),
    });
  }
  return host;
}

describe('the size of the page', () => {
  it('is under 150 kB compressed in total', async () => {
    await using host = await startTestHost();
    let bytes = 0;
    for (const path of ['/', '/dashboard/page.js', '/dashboard/page.css']) {
      const response = await fetch(`${host.url}${path}`, {
        headers: { Accept: 'text/html', 'Accept-Encoding': 'identity' },
      });
      expect(response.status).toBe(200);
      bytes += gzipSync(Buffer.from(await response.arrayBuffer())).byteLength;
    }
    expect(bytes).toBeLessThan(150_000);
  });

  it('is downloaded again only when it has changed, and compressed', async () => {
    await using host = await startTestHost();
    const first = await fetch(`${host.url}/dashboard/page.js`, { headers: { 'Accept-Encoding': 'br' } });
    const length = Number(first.headers.get('content-length'));
    const text = await first.text();
    const again = await fetch(`${host.url}/dashboard/page.js`, {
      headers: { 'If-None-Match': first.headers.get('etag')! },
    });

    expect(first.headers.get('content-encoding')).toBe('br');
    expect(length).toBe(brotliCompressSync(text).byteLength);
    expect(again.status).toBe(304);
  });

  it('allows no script, style or data from elsewhere', async () => {
    await using host = await startTestHost();
    const page = await fetch(`${host.url}/`, { headers: { Accept: 'text/html' } });

    expect(page.headers.get('content-security-policy')).toContain("default-src 'self'");
    expect(await page.text()).not.toMatch(/https?:/);
  });
});

describe.skipIf(!hasBrowser)('500 functions and an hour of history', () => {
  let host: TestHost;
  let browser: Browser;
  beforeAll(async () => {
    host = await busyHost();
    browser = await launchBrowser();
  });
  afterAll(async () => {
    await browser?.close();
    await host?.[Symbol.asyncDispose]();
  });

  it('are drawn in the overview with under half a second of work in the browser', async () => {
    const tookMs: number[] = [];
    // The best of several: the same work takes more time on cores that others use.
    for (let round = 0; round < 5 && !tookMs.some((ms) => ms < 500); round++) {
      await using opened = await openPage(browser, host.url);
      const { page } = opened;
      const session = await page.context().newCDPSession(page);
      await session.send('Performance.enable', { timeDomain: 'threadTicks' });
      await page.addInitScript("localStorage.setItem('turntable-range', '1h')");
      await page.goto(`${host.url}/#/`, { waitUntil: 'commit' });
      await page
        .locator('#tile-offered')
        .getByText(/^(199|200),\d{3} invocations$/)
        .waitFor();
      await page.locator('.plot canvas').nth(4).waitFor();
      const { metrics } = await session.send('Performance.getMetrics');
      // CPU seconds of the page's thread.
      tookMs.push(1000 * (metrics.find(({ name }) => name === 'TaskDuration')?.value ?? Infinity));
    }
    expect(Math.min(...tookMs)).toBeLessThan(500);
  }, 120_000);

  it('are listed in a table that sorts and filters', async () => {
    await using opened = await openPage(browser, host.url);
    const { page, complaints } = opened;
    await page.addInitScript("localStorage.setItem('turntable-range', '1h')");
    await page.goto(`${host.url}/#/functions`);
    await page.getByText('501 of 501 functions').waitFor();
    await page.getByRole('button', { name: 'Function', exact: true }).click();
    expect(await page.locator('tbody tr').nth(2).getAttribute('data-function')).toBe('function-2');
    await page.getByLabel('Filter functions').fill('function-49 is:missing');
    await page.getByText('11 of 501 functions').waitFor();
    expect(complaints).toEqual([]);
  });

  it('cost the host under 3% of a core while the page is open', async () => {
    await using opened = await openPage(browser, host.url);
    const { page } = opened;
    await page.goto(`${host.url}/#/`);
    await page.locator('.plot canvas').nth(3).waitFor();
    const ticks = (count: number): Promise<unknown> =>
      page.evaluate(`new Promise((resolve) => setTimeout(resolve, ${count * 1000}))`);
    const shares: number[] = [];
    // On a machine in a slow hour, a third slower, the same work takes 2.3% instead of less than 2%.
    const shareMax = 0.03;
    // The same work takes more time on cores that others use: the least of several rounds is nearest to the page's own.
    for (let round = 0; round < 8 && !shares.some((share) => share < shareMax); round++) {
      const before = process.cpuUsage();
      const startMs = performance.now();
      await ticks(5);
      const { user, system } = process.cpuUsage(before);
      shares.push((user + system) / 1000 / (performance.now() - startMs));
    }
    expect(Math.min(...shares)).toBeLessThan(shareMax);
  }, 90_000);
});
