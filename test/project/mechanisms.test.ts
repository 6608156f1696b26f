/**
 * Who does what only one may do: queues in front of a run, evictors of a memory, ways to a child process and others.
 * `operator-places.test.ts` counts the files that name an operator. Two mechanisms for one thing disagree sooner or
 * later, and nearly every fault that users found stood where two did. A mechanism that goes takes its line here with it;
 * one that comes has to say here why those that are there do not do.
 */
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { packageRoot } from '../../src/host/config/options.ts';

interface Mechanism {
  readonly what: string;
  /** What only the mechanism itself says. */
  readonly sign: RegExp;
  readonly files: readonly string[];
  readonly why: string;
}

const mechanisms: readonly Mechanism[] = [
  {
    what: 'decides which session on the CPU leaves memory',
    sign: /kind: 'evict-cpu', functionIndex/,
    files: ['schedule/sessions.ts'],
    why: 'the pools had an order of their own, by gaps between calls, and closed what the scheduler wanted to keep',
  },
  {
    what: 'has pools close sessions for room',
    sign: /\bpools\.evict\(/,
    files: ['live/live-cpu.ts'],
    why: 'the pools carry out what the scheduler decides',
  },
  {
    what: 'queues loads for memory',
    sign: /: Waiting\[\] = /,
    files: ['cpu/instance/load-gate.ts'],
    why: 'pools waited for the memory of a session, and then once more for that of its load, in another order',
  },
  {
    what: 'counts the memory of processes with sessions',
    sign: /new MemoryLedger\(/,
    files: ['cpu/instance/processes.ts'],
    why: 'a list that took over from another was in no book, and the old one might pass the limit meanwhile',
  },
  {
    what: 'hands out cores to runs',
    sign: /#busyCores\b/,
    files: ['schedule/cpu-lanes.ts'],
    why: 'a run that had cores of the scheduler waited once more for those of the pools',
  },
  {
    what: 'leases cores to a function alone',
    sign: /new CoreAllocator\(/,
    files: ['cpu/pools.ts', 'cpu/profile/measure/sockets.ts', 'replay/simulator-swaps.ts'],
    why: 'the second only asks which cores lie on one socket, and leases nothing; the third has those of a simulated machine',
  },
  {
    what: 'changes a list of instances for another',
    sign: /= stepTo\(/,
    files: ['cpu/pool/list-swaps.ts'],
    why: 'a replay began, gave up and ended instances by rules of its own, and a list could have fewer instances than it said',
  },
  {
    what: 'queues calls of the CPU',
    sign: /= new SideLine\(/,
    files: ['schedule/side.ts'],
    why: 'a call waited in three orders, of the scheduler, of its pool and of its process, which disagreed',
  },
  {
    what: 'holds calls of the CPU that were handed over',
    sign: /: Ticket\[\] = |: Task\[\] = /,
    files: ['cpu/instance/instance.ts', 'cpu/pool/waiting-calls.ts'],
    why: 'a pool keeps them, in the order in which they came, until a process has room; a process has what it was sent',
  },
  {
    what: 'runs the halves of a handler',
    sign: /\brunPreprocess\(handler,/,
    files: ['cpu/instance/instance-process.ts'],
    why: 'turntable try ran them in its own process, with other limits, errors and times than a host',
  },
  {
    what: 'chooses the version of a call that names none',
    sign: /\bversionFor\(traffic,/,
    files: ['host/store/function-table.ts'],
    why: 'header rules and copies for a shadow decided beside the shares and the key, and nobody could say which had',
  },
  {
    what: 'writes bytes for people',
    sign: /\['B', 'KB', 'MB'/,
    files: ['tools/units.ts'],
    why: 'the page had units of its own, and said 1.5 KB where the command line said 1.54 KB',
  },
  {
    what: 'speaks with a child process',
    sign: /\bstartProcess[<(]/,
    files: ['cpu/instance/instance.ts', 'process/child.ts', 'process/remote.ts'],
    why: 'one typed call serves all children but instances, whose messages are counted and ordered one by one',
  },
];

const src = join(packageRoot, 'src');
const sources = readdirSync(src, { recursive: true, encoding: 'utf8' })
  .filter((name) => /\.tsx?$/.test(name) && !name.endsWith('.test.ts'))
  .map((name) => ({ name, text: readFileSync(join(src, name), 'utf8') }));

test('what the page of the CPU says that one grep finds, it finds', () => {
  const page = readFileSync(join(src, 'cpu', 'README.md'), 'utf8');
  const rows = [...page.matchAll(/^\| (.+?) +\| `(.+?)` +\| `(.+?)` +\|$/gm)].filter(([, who]) => who !== 'Who');
  const found = rows.map(([, who, sign]) => {
    const named = sources.filter(({ text }) => new RegExp(sign!).test(text));
    return [who, named.map(({ name }) => name).join(', ')];
  });
  expect(found).toEqual(rows.map(([, who, , answer]) => [who, answer]));
  expect(found).toHaveLength(3);
});

test.each(mechanisms)('what $what stands where it is known to be', ({ sign, files, why }) => {
  const found = sources.filter(({ text }) => sign.test(text)).map(({ name }) => name);
  expect(found.sort(), why).toEqual(files);
});
