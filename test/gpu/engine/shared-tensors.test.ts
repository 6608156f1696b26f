/**
 * Tensors that a GPU reads and writes in the memory which the host shares: that no byte of them is copied by the GPU
 * process, whose bytes they are at any time, and what happens where that memory cannot be pinned.
 */
import fc from 'fast-check';
import { closeSync, fstatSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test, vi } from 'vitest';
import { Engine } from '../../../src/gpu/engine/engine.ts';
import { GpuError, startGpuProcess, type GpuClient } from '../../../src/gpu/index.ts';
import { ElementType, GraphBuilder, writeModel } from '../../../src/onnx/index.ts';
import { makeRegion, Region } from '../../../src/process/region.ts';
import { encodeMessage, FrameDecoder, tensorOf, type Tensor } from '../../../src/tensor/index.ts';
import { buildEmulatedDriver } from '../../emulated-driver/build.ts';
import { draws } from '../../support/draws.ts';
import { emulatorMissing, withEmulatedCuda, type EmulatedOptions } from '../../support/emulated-cuda.ts';
import type { Emulator } from '../../support/emulator.ts';
import { inHost } from '../../support/in-host.ts';
import { shaped } from '../../support/shapes.ts';
import { makeChain, planFor, wordsOf, type Chain } from './chains.ts';

const seed = Number(process.env['TURNTABLE_SEED'] ?? 1);
const mebibyte = 2 ** 20;
const areaBytes = 16 * mebibyte;

let folder: string;
beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), 'turntable-shared-'));
});
afterAll(() => {
  rmSync(folder, { recursive: true, force: true });
});

/** A host and its GPU process, in one process. */
interface Bench {
  readonly engine: Engine;
  readonly emulator: Emulator;
  readonly refusals: readonly Error[];
  /** Calls a function as the host does. `isInPlace`: a GPU wrote the answer to shared memory. */
  readonly call: (
    chain: Chain,
    input: Tensor,
    signal?: AbortSignal,
  ) => Promise<{ answer: Uint32Array; isInPlace: boolean }>;
  /** Areas of shared memory that are pinned. */
  readonly areasPinned: () => number;
  /** Of shared memory. */
  readonly writtenBytes: () => number;
}

async function onBench(
  options: EmulatedOptions,
  chains: readonly Chain[],
  use: (bench: Bench) => Promise<void>,
): Promise<void> {
  const { region: host, fd } = makeRegion()!;
  const child = new Region(fd, 'child');
  const machine = { devices: [{ memoryBytes: 64 * mebibyte }], seed, ...options };
  try {
    await withEmulatedCuda(machine, async (cuda, emulator) => {
      const refusals: Error[] = [];
      const engine = new Engine(cuda, {
        hostBytes: mebibyte,
        slabBytes: 64 * 1024,
        gpuBytes: 48 * mebibyte,
        shared: child,
        onSharedRefused: (error) => refusals.push(error),
      });
      for (const { key, program } of chains) {
        engine.addFunction(key, program.layout);
        await inHost(engine, key);
      }
      const toChild = new FrameDecoder<object>(undefined, child, true);
      const toHost = new FrameDecoder<object>(undefined, host);
      await use({
        engine,
        emulator,
        refusals,
        // Weights and buffers take less than an area.
        areasPinned: () => Math.floor(cuda.counts().hostBytes / areaBytes),
        writtenBytes: () => fstatSync(fd).blocks * 512,
        call: async (chain, input, signal) => {
          const sent = Buffer.concat(encodeMessage({ header: {}, tensors: [input] }, host));
          const { tensors, release } = toChild.push(sent)[0]!;
          try {
            const plan = planFor(chain, { mode: 'pipeswitch' });
            const given = { gpu: 0, plan, lends: true, ...(signal === undefined ? {} : { signal }) };
            const result = await engine.run(chain.key, chain.program, tensors, given);
            const isInPlace = result.outputs[0]!.data.buffer === tensors[0]!.data.buffer;
            const answer = Buffer.concat(encodeMessage({ header: {}, tensors: result.outputs }, child));
            result.release!();
            return { answer: wordsOf(toHost.push(answer)[0]!.tensors), isInPlace };
          } finally {
            release?.();
          }
        },
      });
      await engine.close();
    });
  } finally {
    host[Symbol.dispose]();
    child[Symbol.dispose]();
    closeSync(fd);
  }
}

const makeChains = (...widths: readonly number[]): Chain[] =>
  widths.map((width, index) => makeChain({ folder, name: `shared${index}`, layerWords: [64, 0, 32], width }));

/** Another input of a function, with its answer: each launch multiplies by three and adds what does not depend on it. */
function inputOf({ input, expected, program }: Chain, number: number): { given: Tensor; answer: Uint32Array } {
  const first = new Uint32Array(input.data.buffer);
  const factor = 3 ** program.launches.length;
  const words = first.map((word, at) => word + number * (at + 1));
  const answer = expected.map((word, at) => word + Math.imul(factor, number * (at + 1)));
  return { given: { ...input, data: new Uint8Array(words.buffer) }, answer };
}

/** The words of 160 KB: too many for a socket to take at once. */
const large = 40_000;

describe.skipIf(emulatorMissing)('tensors in memory that a host shares', () => {
  test('are read and written by the GPU once that memory is pinned, and no byte is copied', async () => {
    const [chain] = makeChains(large);
    await onBench({}, [chain!], async ({ call, areasPinned, refusals }) => {
      const run = async (number: number): Promise<boolean> => {
        const { given, answer } = inputOf(chain!, number);
        const found = await call(chain!, given);
        expect(found.answer).toEqual(answer);
        return found.isInPlace;
      };
      // It waits for nothing.
      expect(await run(1)).toBe(false);
      await vi.waitUntil(() => areasPinned() === 2);
      const copied: number[] = [];
      const set: Uint8Array['set'] = Reflect.get(Uint8Array.prototype, 'set');
      const spy = vi.spyOn(Uint8Array.prototype, 'set').mockImplementation(function (this: Uint8Array, ...given) {
        copied.push(given[0].length);
        set.apply(this, given);
      });
      for (let number = 2; number < 6; number++) expect(await run(number)).toBe(true);
      spy.mockRestore();
      // By the host, which puts its inputs there.
      expect(copied.filter((bytes) => bytes >= 4 * large)).toHaveLength(4);
      expect(refusals).toEqual([]);
    });
  });

  test('are those of their call, with many at a time, of any size, in any order of work, whichever are cancelled', async () => {
    const chains = makeChains(100, large, 3 * large);
    const calls = fc.array(
      fc.record({ chain: fc.nat(chains.length - 1), isCancelled: fc.boolean(), waits: fc.boolean() }),
      { minLength: 1, maxLength: 10 },
    );
    const hostility = fc.constantFrom('late', 'random', 'early');
    await fc.assert(
      fc.asyncProperty(calls, hostility, fc.nat(1000), async (steps, order, machineSeed) => {
        await onBench({ hostility: order, seed: machineSeed }, chains, async ({ call, areasPinned }) => {
          await call(chains[1]!, chains[1]!.input);
          await vi.waitUntil(() => areasPinned() === 2);
          const under: Promise<unknown>[] = [];
          for (const [number, { chain: which, isCancelled, waits }] of steps.entries()) {
            const chain = chains[which]!;
            const { given, answer } = inputOf(chain, number);
            const abort = new AbortController();
            const calling = call(chain, given, abort.signal).then(
              (found) => expect(found.answer).toEqual(answer),
              (error: unknown) => expect(error).toMatchObject({ code: 'cancelled' }),
            );
            under.push(calling);
            if (waits) await calling;
            if (isCancelled) abort.abort();
          }
          await Promise.all(under);
        });
      }),
      { seed, numRuns: draws(2) },
    );
  });

  test('leave their memory after a time without any, which is pinned again for the next ones', async () => {
    const [chain] = makeChains(large);
    vi.useFakeTimers({ toFake: ['setInterval', 'clearInterval'] });
    try {
      await onBench({}, [chain!], async ({ call, areasPinned, writtenBytes }) => {
        for (let round = 1; round < 4; round++) {
          // A call that comes while memory is given up does not have it pinned again.
          for (let number = 0; number < 2 || areasPinned() < 2; number++) {
            const { given, answer } = inputOf(chain!, round * 10 + number);
            expect((await call(chain!, given)).answer).toEqual(answer);
          }
          expect(writtenBytes()).toBeGreaterThanOrEqual(2 * areaBytes);
          // The emulated driver notices pages that are given back before.
          await vi.waitUntil(() => {
            vi.advanceTimersByTime(60_000);
            return writtenBytes() <= 4096;
          });
          expect(areasPinned()).toBe(0);
        }
      });
    } finally {
      vi.useRealTimers();
    }
  });

  test('are copied where the driver does not pin that memory, which is told once', async () => {
    const [chain] = makeChains(large);
    await onBench({}, [chain!], async ({ call, emulator, areasPinned, refusals, engine }) => {
      // Pinned already: its buffer, and the weights.
      await engine.run(chain!.key, chain!.program, [chain!.input], {
        gpu: 0,
        plan: planFor(chain!, { mode: 'pipeswitch' }),
      });
      for (const _area of [1, 2]) emulator.failNext('cuMemHostRegister_v2', 801);
      for (let number = 1; number < 5; number++) {
        const { given, answer } = inputOf(chain!, number);
        expect(await call(chain!, given)).toEqual({ answer, isInPlace: false });
        await vi.waitUntil(() => refusals.length > 0);
      }
      expect(refusals).toHaveLength(1);
      expect(areasPinned()).toBe(0);
    });
  });

  test('a GPU process that is killed at any step of a call with them fails its own calls alone, and leaves no memory', async () => {
    const calls = ['cuMemHostRegister_v2', 'cuMemcpyAsync', 'cuLaunchKernelEx', 'cuEventQuery', 'cuMemHostUnregister'];
    const neighbour = await started();
    try {
      await fc.assert(
        fc.asyncProperty(fc.constantFrom(...calls), fc.nat(8), async (name, after) => {
          const before = sharedMappings();
          const failures: unknown[] = [];
          try {
            const killed = await started([name, after]);
            const own = await Promise.allSettled([1, 2, 3, 4, 5, 6].map((number) => killed.call(number)));
            failures.push(...own.flatMap((each): unknown[] => (each.status === 'rejected' ? [each.reason] : [])));
            await killed.client.stop();
          } catch (error) {
            failures.push(error);
          }
          expect(failures.filter((error) => !(error instanceof GpuError) || error.code !== 'died')).toEqual([]);
          for (const number of [7, 8]) await neighbour.call(number);
          expect(sharedMappings()).toBe(before);
        }),
        // The first registrations are of weights and of a buffer.
        {
          seed,
          numRuns: 3 + draws(1),
          examples: [
            ['cuMemHostRegister_v2', 2],
            ['cuMemHostRegister_v2', 3],
            ['cuMemHostUnregister', 0],
          ],
        },
      );
    } finally {
      await neighbour.client.stop();
    }
  });
});

/** Mappings of memory that this process shares. */
const sharedMappings = (): number => readFileSync('/proc/self/maps', 'utf8').split('memfd:turntable-tensors').length;

/** A GPU process with a function that adds a weight to 160 KB. @param endAt see the emulated driver's README */
async function started(
  endAt?: readonly [string, number],
): Promise<{ client: GpuClient; call: (number: number) => Promise<void> }> {
  const graph = new GraphBuilder('sum');
  const x = graph.input('x', ElementType.FLOAT, [1, large]);
  const weight = Float32Array.from({ length: large }, (_, at) => at);
  graph.output(graph.node('Add', [x, graph.weight('w', [large], weight)]), ElementType.FLOAT, [1, large], 'y');
  const modelPath = join(folder, 'sum.onnx');
  await writeModel(graph.build(), modelPath);
  const { environment } = (await buildEmulatedDriver())!;
  const client = startGpuProcess({
    hostBytes: mebibyte,
    slabBytes: mebibyte,
    gpuBytes: 16 * mebibyte,
    cacheFolder: join(folder, 'cache'),
    environment: { ...environment, ...(endAt && { TURNTABLE_EMULATOR: JSON.stringify({ devices: [{}], endAt }) }) },
    log: () => undefined,
  });
  await client.ready;
  const key = 'sum@1';
  const coverage = await client.register({ key, modelPath, shapes: shaped({ x: [1, large] }) });
  await client.stage(key);
  if (!coverage.covered) throw new Error('the GPU has no Add');
  const layers = coverage.layers.map(({ name }) => ({ name, method: 'load', link: 0 }) as const);
  const plan = { mode: 'pipeswitch', primary: 0, secondaries: [], bytesGpu: coverage.weightBytes, layers } as const;
  return {
    client,
    call: async (number) => {
      const input = tensorOf('x', 'FP32', [1, large], new Float32Array(large).fill(number));
      const { outputs } = await client.run(key, [input], { gpu: 0, plan });
      const expected = Buffer.from(Float32Array.from(weight, (each) => each + number).buffer);
      expect(Buffer.compare(outputs[0]!.data, expected)).toBe(0);
    },
  };
}
