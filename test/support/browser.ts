/** Debian's Chromium for tests of pages; without it these tests are skipped with a message. */
import { existsSync } from 'node:fs';
import { chromium, type Browser, type BrowserContextOptions, type Page } from 'playwright-core';
import { waitLimitMs } from '../time-limits.ts';

/** The first is the same engine without the browser around it: a page takes half of the work. */
const programs = ['/usr/bin/chromium-headless-shell', '/usr/bin/chromium'];
const executablePath = [process.env['TURNTABLE_CHROMIUM'] ?? programs].flat().find((path) => existsSync(path)) ?? '';

export const hasBrowser = executablePath !== '';
if (!hasBrowser)
  console.warn('chromium-headless-shell is missing: the tests of the dashboard in a browser are left out');

export function launchBrowser(): Promise<Browser> {
  return chromium.launch({
    executablePath,
    timeout: waitLimitMs,
    args: [
      '--headless',
      '--no-sandbox',
      '--disable-gpu',
      '--disable-background-networking',
      '--disable-component-update',
      '--disable-sync',
    ],
  });
}

export interface WatchedPage extends AsyncDisposable {
  readonly page: Page;
  /** Console errors, and requests that left the host. */
  readonly complaints: string[];
}

/** A new page that records all complaints. */
export async function openPage(
  browser: Browser,
  url: string,
  options: BrowserContextOptions = {},
): Promise<WatchedPage> {
  const context = await browser.newContext({ viewport: { width: 1280, height: 900 }, ...options });
  const page = await context.newPage();
  page.setDefaultTimeout(waitLimitMs);
  const complaints: string[] = [];
  page.on('console', (message) => {
    if (message.type() === 'error' || message.type() === 'warning')
      complaints.push(`${message.text()} (${message.location().url})`);
  });
  page.on('pageerror', (error) => complaints.push(error.message));
  page.on('request', (request) => {
    const to = request.url();
    if (!to.startsWith(url) && !to.startsWith('data:') && !to.startsWith('blob:'))
      complaints.push(`a request to ${to}`);
  });
  return { page, complaints, [Symbol.asyncDispose]: () => context.close() };
}
