/** Functions whose cold start takes longer than their SLO, under shedding. */
import { expect, test } from 'vitest';
import { arrival, Bench, best, finished, kinds } from '../../test/support/scheduler-bench.ts';

const shed = { ...best, admission: 'shed' } as const;
/** 40 ms over the link, 10 ms of run. */
const shape = { layers: [20, 20], warmMs: 10 };

test('one late call has its function loaded, and the next ones find it there', () => {
  const bench = new Bench(shed);
  const fn = bench.add(shape, { sloMs: 15 });
  expect(kinds(bench.at(0, arrival(0, fn)))).toContain('load');
  // While it is under way the others are refused: they would be as late.
  expect(kinds(bench.at(1, arrival(1, fn)))).toEqual(['shed']);
  const [run] = bench.at(40, { kind: 'loaded', gpu: 0, functionIndex: fn });
  expect(run).toMatchObject({ kind: 'run', invocation: 0, decision: { reason: 'bringing' } });
  bench.at(50, finished(0));
  expect(bench.at(60, arrival(2, fn))).toMatchObject([
    { kind: 'run', start: 'warm', decision: { reason: 'resident' } },
  ]);
});

test('nothing is loaded for a function of which even a warm run is late', () => {
  const bench = new Bench(shed);
  const fn = bench.add(shape, { sloMs: 9 });
  for (let call = 0; call < 5; call++) expect(kinds(bench.at(100 * call, arrival(call, fn)))).toEqual(['shed']);
});

test('a function that a load does not bring is tried less and less often', () => {
  const bench = new Bench(shed);
  const fn = bench.add(shape, { sloMs: 15 });
  const letInAtMs: number[] = [];
  for (let nowMs = 0; nowMs < 2000; nowMs += 10) {
    const [first] = bench.at(nowMs, arrival(0, fn));
    if (first?.kind === 'shed') continue;
    letInAtMs.push(nowMs);
    // The GPU is lost with what was on its way, its call finds no other, and the GPU comes back.
    bench.at(nowMs, { kind: 'gpu-lost', gpu: 0 });
    bench.at(nowMs, { kind: 'gpu-back', gpu: 0 });
  }
  const pausesMs = letInAtMs.slice(1).map((ms, index) => ms - letInAtMs[index]!);
  expect(pausesMs).toEqual([50, 90, 170, 330, 660]);
});

test('a function that was there and has gone is brought again as soon as the first time', () => {
  const bench = new Bench(shed);
  const fn = bench.add(shape, { sloMs: 15 });
  for (let round = 0; round < 20; round++) {
    const nowMs = 1000 * round;
    expect(kinds(bench.at(nowMs, arrival(0, fn)))).toContain('load');
    bench.at(nowMs + 40, { kind: 'loaded', gpu: 0, functionIndex: fn });
    bench.at(nowMs + 50, finished(0));
    bench.at(nowMs + 60, { kind: 'gpu-lost', gpu: 0 });
    bench.at(nowMs + 60, { kind: 'gpu-back', gpu: 0 });
  }
});

test('of two that are called in turn one stays, where there is room for one: brought in turn, both would be late', () => {
  const bench = new Bench(shed, { capacityBytes: 40 });
  const functions = [bench.add(shape, { sloMs: 15 }), bench.add(shape, { sloMs: 15 })];
  const came: string[] = [];
  for (let call = 0; call < 200; call++) {
    const nowMs = 500 * call;
    const fn = functions[call % 2]!;
    const [first, ...rest] = bench.at(nowMs, arrival(0, fn));
    const isBrought = [first, ...rest].some((action) => action?.kind === 'load');
    came.push(isBrought ? 'brought' : first!.kind);
    if (isBrought) bench.at(nowMs + 40, { kind: 'loaded', gpu: 0, functionIndex: fn });
    if (first!.kind !== 'shed') bench.at(nowMs + 50, finished(0));
  }
  // How often they are called, and what a load evicts, is learnt from the first ones.
  const later = came.slice(100);
  expect(later.filter((kind) => kind === 'run')).toHaveLength(50);
  expect(later.filter((kind) => kind === 'shed')).toHaveLength(50);
});

test('calls that could be in time on an idle link are let in by the prediction alone', () => {
  const bench = new Bench(shed);
  const [first, second] = [bench.add(shape, { sloMs: 60 }), bench.add(shape, { sloMs: 60 })];
  expect(kinds(bench.at(0, arrival(0, first)))).toContain('load');
  // Its load would come behind the first: it is refused, and not let through.
  expect(kinds(bench.at(0, arrival(1, second)))).toEqual(['shed']);
});

test('a function whose calls find the link taken time after time is brought by the third of them', () => {
  const bench = new Bench(shed, { capacityBytes: 1000 });
  const fn = bench.add(shape, { sloMs: 60 });
  const came = [0, 1, 2].map((round) => {
    const nowMs = 200 * round;
    const other = bench.add(shape, { sloMs: 60 });
    expect(kinds(bench.at(nowMs, arrival(0, other)))).toContain('load');
    const [said] = bench.at(nowMs, arrival(1, fn));
    bench.at(nowMs + 40, { kind: 'loaded', gpu: 0, functionIndex: other });
    bench.at(nowMs + 50, finished(0));
    return said;
  });
  expect(came).toMatchObject([{ kind: 'shed' }, { kind: 'shed' }, { kind: 'wait', decision: { reason: 'bringing' } }]);
});

test('a function that is called seldom is not brought in place of one that is called often', () => {
  const bench = new Bench(shed, { capacityBytes: 40 });
  const [often, seldom] = [bench.add(shape, { sloMs: 15 }), bench.add(shape, { sloMs: 15 })];
  const counts = new Map([often, seldom].map((fn) => [fn, { brought: 0, refused: 0 }]));
  let nowMs = 0;
  const call = (fn: number): void => {
    nowMs += 1000;
    const said = kinds(bench.at(nowMs, arrival(0, fn)));
    if (said.includes('shed')) counts.get(fn)!.refused++;
    else {
      if (said.includes('load')) {
        counts.get(fn)!.brought++;
        bench.at(nowMs + 40, { kind: 'loaded', gpu: 0, functionIndex: fn });
      }
      bench.at(nowMs + 50, finished(0));
    }
  };
  for (let round = 0; round < 30; round++) {
    for (let time = 0; time < 9; time++) call(often);
    call(seldom);
  }
  expect(counts.get(often)!.refused).toBe(0);
  // What a load evicts is learnt from the first ones.
  expect(counts.get(seldom)!.brought).toBeLessThanOrEqual(3);
});
