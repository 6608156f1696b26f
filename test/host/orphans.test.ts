/** A host that is gone leaves no process behind, whatever its instances were doing. */
import { readFileSync } from 'node:fs';
import { mkdir, mkdtemp, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { ElementType, GraphBuilder, writeModel } from '../../src/onnx/index.ts';
import { serve, type ServingHost } from '../cli/command.ts';

const size = 2048;
/** Some 17 billion operations each: together more than a minute in one native call. */
const products = 2000;
/** Clock ticks of CPU time; the start of an instance takes about thirty. */
const ticksOfARun = 200;

let folder: string;
let modelPath: string;

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'turntable-orphans-'));
  const graph = new GraphBuilder('long');
  const x = graph.input('x', ElementType.FLOAT, [1]);
  const weight = graph.weight('w', [size, size], new Float32Array(size * size).fill(1 / size));
  let square = graph.node('Expand', [x, graph.constant({ ints: [size, size] })]);
  for (let product = 0; product < products; product++) square = graph.node('MatMul', [square, weight]);
  graph.output(graph.node('ReduceMax', [square], { keepdims: 0 }), ElementType.FLOAT, [], 'y');
  modelPath = join(folder, 'long.onnx');
  await writeModel(graph.build(), modelPath, { externalData: 'never' });
});
afterAll(() => rm(folder, { recursive: true, force: true }));

/** A host with a call of the long model in progress, and the processes that it has started. */
async function underWay(name: string): Promise<{ host: ServingHost; pids: readonly number[] }> {
  const functions = join(folder, name);
  await mkdir(functions);
  const host = await serve(['--functions-dir', functions, '--data-dir', join(folder, `${name}-data`)]);
  const published = await fetch(`${host.url}/functions/long?slo=60s`, {
    method: 'PUT',
    body: await readFile(modelPath),
  });
  expect(published.status).toBeLessThan(300);
  const call = fetch(`${host.url}/function/long`, { method: 'POST', body: JSON.stringify({ input: [1] }) });
  call.catch(() => undefined);
  const pid = host.child.pid!;
  await expect.poll(() => Math.max(0, ...childrenOf(pid).map(ticksOf)), { interval: 50 }).toBeGreaterThan(ticksOfARun);
  return { host, pids: childrenOf(pid) };
}

const areRunning = (pids: readonly number[]): readonly number[] => pids.filter(isRunning);

test('after SIGKILL during a run', async () => {
  const { host, pids } = await underWay('killed');
  expect(pids.length).toBeGreaterThan(0);
  await host.end('SIGKILL');
  await expect.poll(() => areRunning(pids), { interval: 20 }).toEqual([]);
});

test('after a function was deleted during its run and the host was stopped', async () => {
  const { host, pids } = await underWay('deleted');
  const path = `${host.url}/functions/long`;
  // It waits for the run, and ends with the host.
  fetch(path, { method: 'DELETE' }).catch(() => undefined);
  await expect.poll(async () => (await fetch(path)).status, { interval: 20 }).toBe(404);
  // A drain waits for the call too; a second signal does not.
  host.child.kill('SIGTERM');
  await host.end('SIGINT');
  await expect.poll(() => areRunning(pids), { interval: 20 }).toEqual([]);
});

function childrenOf(pid: number): number[] {
  try {
    const text = readFileSync(`/proc/${pid}/task/${pid}/children`, 'utf8').trim();
    return text === '' ? [] : text.split(' ').map(Number);
  } catch {
    return [];
  }
}

/** State, and the fields after the name. */
function statOf(pid: number): string[] {
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, 'utf8');
    return stat.slice(stat.lastIndexOf(')') + 2).split(' ');
  } catch {
    return [];
  }
}

function ticksOf(pid: number): number {
  const fields = statOf(pid);
  return Number(fields[11] ?? 0) + Number(fields[12] ?? 0);
}

function isRunning(pid: number): boolean {
  const [state = 'Z'] = statOf(pid);
  return state !== 'Z';
}
