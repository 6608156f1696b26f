import { expect, test } from 'vitest';
import { newTraceparent, traceText } from './trace.ts';

test('the trace id is new unless TRACEPARENT names one', () => {
  const one = newTraceparent({});
  expect(one).toMatch(/^00-[0-9a-f]{32}-[0-9a-f]{16}-01$/);
  expect(newTraceparent({})).not.toBe(one);
  expect(newTraceparent({ TRACEPARENT: one }).slice(0, 35)).toBe(one.slice(0, 35));
  expect(newTraceparent({ TRACEPARENT: one })).not.toBe(one);
  expect(newTraceparent({ TRACEPARENT: 'nonsense' })).toMatch(/^00-[0-9a-f]{32}-/);
});

test('the parts of a call are listed below the host, and the host below the client', () => {
  const timing =
    'total;dur=10, queue;dur=0.5, load;dur=0, preprocess;dur=1.5;desc="process 42", ' +
    'model;dur=6;desc="cpu pool warm, as gpu0 is full", postprocess;dur=1;desc="process 42"';
  const headers = new Headers({ 'server-timing': timing, 'x-request-id': 'r1' });
  const lines = traceText('00-abc-def-01', 12, headers).split('\n');
  expect(lines.map((line) => line.replaceAll(/ {2,}(?=\S)/g, ' '))).toEqual([
    'trace abc',
    'client 12 ms with the network',
    '└─ host 10 ms request r1',
    ' ├─ queue 0.5 ms',
    ' ├─ preprocess 1.5 ms process 42',
    ' ├─ model 6 ms cpu pool warm, as gpu0 is full',
    ' ├─ postprocess 1 ms process 42',
    ' └─ other 1 ms bodies, and the way to the process',
  ]);
  // An older host tells no parts.
  expect(traceText('00-abc-def-01', 12, new Headers()).split('\n')).toHaveLength(2);
});
