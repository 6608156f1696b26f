/**
 * The cost of the page in bytes, elements and requests. `npm run bench -- dashboard` measures its time, in the browser
 * and in the host.
 */
import { brotliCompressSync, gzipSync } from 'node:zlib';
import type { Browser, Page, Request } from 'playwright-core';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { EventParser } from '../../src/client/index.ts';
import { startTestHost, type TestHost } from '../host/test-host.ts';
import { hasBrowser, launchBrowser, openPage } from '../support/browser.ts';
import { startHostWithHistory } from '../support/dashboard-load.ts';

describe('the size of the page', () => {
  it('the size of the page is under 150 kB compressed in total', async () => {
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

  it('the page is downloaded again only when it has changed, and compressed', async () => {
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

  it('the page allows no script, style or data from elsewhere', async () => {
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
    host = await startHostWithHistory({ functions: 500, calls: 200_000 });
    browser = await launchBrowser();
  });
  afterAll(async () => {
    await browser?.close();
    await host?.[Symbol.asyncDispose]();
  });

  it('500 functions and an hour of history are drawn in the overview with under 400 elements, from under 150 kB of answers', async () => {
    await using opened = await openPage(browser, host.url);
    const { page } = opened;
    const answers = answersOf(page);
    await page.addInitScript("localStorage.setItem('turntable-range', '1h')");
    await page.goto(`${host.url}/#/`, { waitUntil: 'commit' });
    await page
      .locator('#tile-offered')
      .getByText(/^(199|200),\d{3} invocations$/)
      .waitFor();
    await page.locator('.plot canvas').nth(4).waitFor();
    expect(await page.evaluate("document.querySelectorAll('*').length")).toBeLessThan(400);
    await expect.poll(() => [...answers.keys()]).toEqual(expect.arrayContaining(polled));
    // A slow browser may have asked a second time by now.
    const bytes = [...answers.values()].map((sizes) => Math.max(...sizes));
    expect(bytes.reduce((sum, size) => sum + size, 0)).toBeLessThan(150_000);
  });

  it('500 functions and an hour of history are listed in a table that sorts and filters', async () => {
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

  it('cost the host four answers of under 50 kB together in five seconds while the page is open', async () => {
    await using opened = await openPage(browser, host.url);
    const { page } = opened;
    const answers = answersOf(page);
    const askedAtS = new Map<string, number[]>();
    const session = await page.context().newCDPSession(page);
    await session.send('Network.enable');
    session.on('Network.requestWillBeSent', ({ request, timestamp }) => {
      const { pathname } = new URL(request.url);
      askedAtS.set(pathname, [...(askedAtS.get(pathname) ?? []), timestamp]);
    });
    await page.addInitScript("localStorage.setItem('turntable-range', '1h')");
    await page.goto(`${host.url}/#/`);
    await page.locator('.plot canvas').nth(4).waitFor();
    await expect.poll(() => polled.every((path) => (answers.get(path)?.length ?? 0) > 1)).toBe(true);
    const again = [...askedAtS].filter(([, times]) => times.length > 1);
    expect(again.map(([path]) => path).toSorted()).toEqual(polled);
    // By the browser's clock, where a timer is late at times, but never early.
    for (const [, times] of again) {
      for (const [index, time] of times.slice(1).entries()) expect(time - times[index]!).toBeGreaterThan(4.99);
    }
    const bytes = polled.map((path) => Math.max(...answers.get(path)!));
    expect(bytes.reduce((sum, size) => sum + size, 0)).toBeLessThan(50_000);
  });

  it('send an open page under 500 bytes a tick', async () => {
    const stop = new AbortController();
    const reply = await fetch(`${host.url}/api/events`, { signal: stop.signal });
    const parser = new EventParser();
    const ticks: string[] = [];
    for await (const part of reply.body!.pipeThrough(new TextDecoderStream())) {
      ticks.push(...parser.push(part).flatMap(({ event, data }) => (event === 'tick' ? [data] : [])));
      if (ticks.length > 2) break;
    }
    stop.abort();
    for (const tick of ticks) expect(tick.length).toBeLessThan(500);
  });
});

/** What the overview asks again and again, in the order of the alphabet. */
const polled = ['/api/anatomy/recorded', '/api/errors', '/api/history', '/api/trouble'];

/** Sizes of the host's answers by path, as they come. */
function answersOf(page: Page): Map<string, number[]> {
  const answers = new Map<string, number[]>();
  const add = async (request: Request): Promise<void> => {
    const { pathname } = new URL(request.url());
    if (!pathname.startsWith('/api/')) return;
    // The page may close while it is asked.
    const sizes = await request.sizes().catch(() => undefined);
    if (sizes !== undefined) answers.set(pathname, [...(answers.get(pathname) ?? []), sizes.responseBodySize]);
  };
  page.on('requestfinished', (request) => void add(request));
  return answers;
}
