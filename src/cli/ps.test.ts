import { describe, expect, test } from 'vitest';
import { placedText } from './ps.ts';

const nowMs = 10_000_000;
const row = {
  name: 'bert-1',
  version: '1',
  state: 'ready',
  residency: 'gpu',
  sloMs: 50,
  description: 'What it does.',
  gpuBytes: 3 * 2 ** 20,
  hostBytes: 4 * 2 ** 20,
  lastUseMs: nowMs - 5000,
  plan: 'pt+dha',
  hits: 7,
  coldStarts: 2,
  evictions: { 'gpu trim': 3, idle: 1 },
};

describe('turntable ps', () => {
  test('turntable ps shows where a function is, and its evictions by cause', () => {
    const [heading, line] = placedText({ functions: [row] }, nowMs).split('\n');
    expect(heading).toMatch(
      /^FUNCTION +STATE +SLO +GPU +HOST +LAST USE +HITS +COLD +OVERFLOW +EVICTIONS +LAST COLD START +PLAN +NOTE$/,
    );
    expect(line).toMatch(
      /^bert-1@1 +gpu +50 ms +3.15 MB +4.19 MB +5 s ago +7 +2 +0 +3 gpu trim, 1 idle +- +pt\+dha +What it does\.$/,
    );
  });

  test('turntable ps shows that a function was never used, and that another is broken', () => {
    const text = placedText(
      { functions: [{ ...row, state: 'unavailable', reason: 'no handler', lastUseMs: 0, gpuBytes: 0, evictions: {} }] },
      nowMs,
    );
    expect(text).toMatch(/unavailable +50 ms +- .* never .* - +pt\+dha +no handler$/);
  });

  test('turntable ps says why the latest instance of a function died', () => {
    const text = placedText({ functions: [{ ...row, reason: null, lastDeath: 'a run of slow@1 hung' }] }, nowMs);
    expect(text).toMatch(/ an instance died: a run of slow@1 hung$/);
  });

  test('turntable ps lists the most recently used function first', () => {
    const functions = [row, { ...row, name: 'bert-2', lastUseMs: nowMs }, { ...row, name: 'bert-0' }];
    const [, ...lines] = placedText({ functions }, nowMs).split('\n');
    expect(lines.map((line) => line.split('@')[0])).toEqual(['bert-2', 'bert-0', 'bert-1']);
  });

  test('turntable ps shows a replaced version that is still in memory', () => {
    const others = [{ ...row, version: '1', gpuBytes: 2 ** 20 }];
    const [, ...lines] = placedText({ functions: [{ ...row, version: '2' }], others }, nowMs).split('\n');
    expect(lines.map((line) => line.split(/ +/)[0])).toEqual(['bert-1@2', 'bert-1@1']);
  });

  test('turntable ps reads the reply of an older host, which lacks fields', () => {
    const [, line] = placedText({ functions: [{ name: 'old' }, 7] }, nowMs).split('\n');
    expect(line).toMatch(/^old@ +- +- +- +never +0 +0 +0 +- +- +- +-$/);
    expect(placedText('nothing of the kind', nowMs)).toBe('no functions');
  });
});
