import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { openFunction } from '../../functions/_training/call-function.ts';
import * as accentRestorer from '../../functions/accent-restorer/handler.ts';
import * as digitReader from '../../functions/digit-reader/handler.ts';
import * as languageId from '../../functions/language-id/handler.ts';
import type { Handler } from '../../src/cpu/index.ts';

const root = join(import.meta.dirname, '../..');
const handlers: Readonly<Record<string, Handler>> = {
  'accent-restorer': accentRestorer,
  'digit-reader': digitReader,
  'language-id': languageId,
};
/** A call with curl, its body given as text or as a file, and the answer on the next line. */
const callPattern = /^\$ curl -s (?:--data '([^']+)'|--data-binary @(\S+)) \S+\/function\/([\w-]+)\n(.+)$/gm;

/** Figures may differ in the last place between processors. */
const near = (value: number): unknown => expect.closeTo(value, 3);
function rounded(value: unknown): unknown {
  if (typeof value === 'number') return near(value);
  if (Array.isArray(value)) return value.map(rounded);
  if (typeof value !== 'object' || value === null) return value;
  return Object.fromEntries(Object.entries(value).map(([key, inner]) => [key, rounded(inner)]));
}

describe.each(Object.entries(handlers))('the README of %s', (name, handler) => {
  const folder = join(root, 'functions', name);
  const calls = [...readFileSync(join(folder, 'README.md'), 'utf8').matchAll(callPattern)].map(
    ([, text, file, called, answer = '']) => ({ body: text ?? readFileSync(join(root, file ?? '')), called, answer }),
  );

  test('shows a call', () => {
    expect(calls.length).toBeGreaterThan(0);
  });

  test.each(calls)('gives the real answer', async ({ body, called, answer }) => {
    expect(called).toBe(name);
    const { call } = await openFunction(folder, handler);
    expect(await call(body)).toEqual(rounded(JSON.parse(answer)));
  });
});
