import { expect, test } from 'vitest';
import { ErrorHistory } from './error-history.ts';

const second = { stepMs: 1000, steps: 10 };
const badTensor = { status: 400, code: 'bad-tensor' };
const shed = { status: 503, code: 'shed' };
const gone = { status: 499, code: 'client-gone' };
const message = 'said to its client';

test('errors are counted by status and code, the most frequent first, each with its latest time', () => {
  const errors = new ErrorHistory([second]);
  for (const atMs of [1000, 1500, 3200]) errors.add({ ...badTensor, message: `tensor ${atMs}` }, atMs);
  errors.add({ ...shed, message }, 2000);
  expect(errors.causes({ stepMs: 1000, fromMs: 0, toMs: 5000 })).toEqual([
    { ...badTensor, count: 3, lastMs: 3000 },
    { ...shed, count: 1, lastMs: 2000 },
  ]);
  expect(errors.causes({ stepMs: 1000, fromMs: 2000, toMs: 3000 })).toEqual([{ ...shed, count: 1, lastMs: 2000 }]);
  expect(['bad-tensor', 'shed', 'internal'].map((code) => errors.latest(code))).toEqual([
    'tensor 3200',
    message,
    undefined,
  ]);
});

test('columns have the errors of clients and of the host for each step, zeros included', () => {
  const errors = new ErrorHistory([second]);
  for (const error of [badTensor, gone, shed]) errors.add({ ...error, message }, 2999);
  expect(errors.columns({ stepMs: 1000, fromMs: 1000, toMs: 4000 })).toEqual({
    atMs: [1000, 2000, 3000],
    client: [0, 2, 0],
    host: [0, 1, 0],
  });
});

test('each tier keeps only its latest steps', () => {
  const coarse = { stepMs: 10_000, steps: 3 };
  const errors = new ErrorHistory([second, coarse]);
  for (let atMs = 0; atMs < 60_000; atMs += 500) errors.add({ ...shed, message }, atMs);
  const of = (stepMs: number): number =>
    errors.causes({ stepMs, fromMs: 0, toMs: 60_000 }).reduce((sum, { count }) => sum + count, 0);
  expect(of(1000)).toBe(20);
  expect(of(10_000)).toBe(60);
});
