/** The behaviour of every overflow queue, whatever its transport. */
import fc from 'fast-check';
import { expect, test } from 'vitest';
import { CpuError, type InvokeOptions, type PoolInput, type PoolResult } from '../../src/cpu/index.ts';
import type { FunctionOffer } from '../../src/fleet/index.ts';
import type { OverflowQueue, RemoteTaker } from '../../src/queue/index.ts';
import { tensorOf } from '../../src/tensor/index.ts';

export interface Taken {
  readonly key: string;
  readonly input: PoolInput;
  readonly options: InvokeOptions;
  answer(result?: Partial<PoolResult>): void;
  fail(error: Error): void;
}

/** A taker whose runs end when the test says so; `auto`: at once, with the input as output. */
export class ScriptedTaker implements Pick<RemoteTaker, 'name' | 'cores' | 'offer' | 'work' | 'run'> {
  readonly name: string;
  readonly cores = 1;
  slots = 1;
  callMs = 5;
  auto = false;
  /** Whether it has stopped reporting, as after a SIGKILL. */
  mute = false;
  keys = new Set(['f@1']);
  readonly taken: Taken[] = [];
  #waiters: { count: number; resolve: () => void }[] = [];
  #outstanding = 0;

  constructor(name: string) {
    this.name = name;
  }

  offer(key: string): FunctionOffer | undefined {
    if (!this.keys.has(key)) return undefined;
    const { slots, callMs } = this;
    const ms = callMs * (1 + this.#outstanding / slots);
    return { ms, isHeld: true, load: 0, callMs, startMs: 0, lanes: slots };
  }

  work(): { outstanding: number; backlogMs: number } {
    return { outstanding: this.#outstanding, backlogMs: (this.#outstanding * this.callMs) / this.slots };
  }

  run(key: string, input: PoolInput, options: InvokeOptions): Promise<PoolResult> {
    this.#outstanding++;
    const running = new Promise<PoolResult>((resolve, reject) => {
      this.taken.push({
        key,
        input,
        options,
        answer: (result) => resolve({ ...echo(input), ...result }),
        fail: reject,
      });
      if (this.auto) resolve(echo(input));
    });
    for (const { count, resolve } of this.#waiters) if (this.taken.length >= count) resolve();
    return running.finally(() => this.#outstanding--);
  }

  /** Resolves to its n-th invocation. */
  async nth(n: number): Promise<Taken> {
    if (this.taken.length < n) await new Promise<void>((resolve) => this.#waiters.push({ count: n, resolve }));
    const taken = this.taken[n - 1];
    if (taken === undefined) throw new Error('not taken');
    return taken;
  }
}

function echo(input: PoolInput): PoolResult {
  return {
    output:
      input.kind === 'tensors'
        ? { kind: 'tensors', tensors: input.tensors }
        : { kind: 'response', response: { status: 201, headers: { 'x-said': 'yes' }, body: input.request.body } },
    timings: { queueMs: 1, loadMs: 2, preprocessMs: 3, inferMs: 4, postprocessMs: 5 },
    coldStart: true,
    batchSize: 3,
    instancePid: 42,
  };
}

export function tensorInput(...values: number[]): PoolInput {
  return { kind: 'tensors', tensors: [tensorOf('x', 'FP32', [values.length], Float32Array.from(values))] };
}

/** Tensors with plain bytes: whether these belong to a Buffer does not matter. */
export function plain<T extends PoolInput | PoolResult['output']>(value: T): T {
  if (value.kind !== 'tensors') return value;
  return { ...value, tensors: value.tensors.map((tensor) => ({ ...tensor, data: Uint8Array.from(tensor.data) })) };
}

export interface QueueUnderTest extends AsyncDisposable {
  readonly queue: OverflowQueue;
}

/** `make` returns a queue with its takers, which lets at most `waitingMax` invocations wait beyond the running ones. */
export function overflowQueueConformance(
  make: (takers: readonly ScriptedTaker[], waitingMax: number) => Promise<QueueUnderTest>,
): void {
  test('an answer comes back bit by bit as the taker gave it, with its name', async () => {
    const taker = new ScriptedTaker('one');
    await using made = await make([taker], 10);
    const input = tensorInput(1.5, -0, Number.NaN, 3e38);
    const submitted = made.queue.submit('f@1', { ...input, outputs: ['y'] } as PoolInput, { priority: 7 });
    const taken = await taker.nth(1);
    expect(plain(taken.input)).toEqual(plain({ ...input, outputs: ['y'] } as PoolInput));
    expect(taken.options.priority).toBe(7);
    taken.answer();
    const { worker, result } = await submitted;
    expect(worker).toBe('one');
    expect({ ...result, output: plain(result.output) }).toEqual({ ...echo(input), output: plain(input) });
    expect(made.queue.state()).toMatchObject({ outstanding: 0, answered: { one: 1 }, movedElsewhere: 0 });
  });

  test('a request for a handler is sent with method, path, headers and any body', async () => {
    const taker = new ScriptedTaker('one');
    taker.auto = true;
    await using made = await make([taker], 10);
    await fc.assert(
      fc.asyncProperty(fc.uint8Array({ maxLength: 300 }), fc.string(), async (body, text) => {
        const url = `/function/f?text=${encodeURIComponent(text)}`;
        const request = { method: 'POST', url, headers: { 'content-type': 'x/y' }, body };
        const { result } = await made.queue.submit('f@1', { kind: 'request', request });
        const got = taker.taken.at(-1)?.input;
        expect(got).toMatchObject({ kind: 'request', request: { method: 'POST', url, headers: request.headers } });
        expect(result.output).toMatchObject({ kind: 'response', response: { status: 201 } });
        const reply = result.output.kind === 'response' ? result.output.response.body : undefined;
        expect(Buffer.from(reply ?? [1]).equals(body)).toBe(true);
      }),
      { numRuns: 15 },
    );
  });

  test("a function's own failure is passed on with its code, message and status", async () => {
    const taker = new ScriptedTaker('one');
    await using made = await make([taker], 10);
    const submitted = made.queue.submit('f@1', tensorInput(1));
    (await taker.nth(1)).fail(new CpuError('handler-input', 'no letters in it', 422));
    await expect(submitted).rejects.toMatchObject({
      name: 'CpuError',
      code: 'handler-input',
      message: 'no letters in it',
      status: 422,
    });
  });

  test('an invocation that no taker accepts is refused at once, and there is no offer for it', async () => {
    await using made = await make([new ScriptedTaker('one')], 10);
    expect(made.queue.offer('g@1')).toBeUndefined();
    await expect(made.queue.submit('g@1', tensorInput(1))).rejects.toMatchObject({
      name: 'QueueError',
      code: 'no-worker',
      message: expect.stringContaining('g@1') as string,
    });
  });

  test('the offer names the taker that is done first, and grows with its work', async () => {
    const [slow, quick] = [new ScriptedTaker('slow'), new ScriptedTaker('quick')];
    slow.callMs = 500;
    quick.callMs = 20;
    await using made = await make([slow, quick], 10);
    const before = made.queue.offer('f@1');
    expect(before?.at.title).toBe('quick');
    const submitted = made.queue.submit('f@1', tensorInput(1));
    const taken = await quick.nth(1);
    expect(made.queue.offer('f@1')?.ms).toBeGreaterThan((before?.ms ?? Infinity) + 10);
    taken.answer();
    await submitted;
  });

  test('a taker that is leaving is passed over, and the next one gives the only answer', async () => {
    const [going, staying] = [new ScriptedTaker('going'), new ScriptedTaker('staying')];
    going.callMs = 1;
    staying.callMs = 50;
    await using made = await make([going, staying], 10);
    const submitted = made.queue.submit('f@1', tensorInput(1));
    (await going.nth(1)).fail(new CpuError('stopping', 'it is stopping'));
    (await staying.nth(1)).answer();
    expect((await submitted).worker).toBe('staying');
    expect(made.queue.state()).toMatchObject({ movedElsewhere: 1, outstanding: 0 });
  });

  test('if all takers are leaving, the invocation is returned to run here', async () => {
    const taker = new ScriptedTaker('one');
    await using made = await make([taker], 10);
    const submitted = made.queue.submit('f@1', tensorInput(1));
    (await taker.nth(1)).fail(new CpuError('stopping', 'it is stopping'));
    await expect(submitted).rejects.toMatchObject({ name: 'QueueError', code: 'worker-gone' });
  });

  test('a client that leaves is told so at once; the answer that comes later is dropped', async () => {
    const taker = new ScriptedTaker('one');
    await using made = await make([taker], 10);
    const controller = new AbortController();
    const first = made.queue.submit('f@1', tensorInput(1));
    const taken = await taker.nth(1);
    const second = made.queue.submit('f@1', tensorInput(2), { signal: controller.signal });
    controller.abort();
    await expect(second).rejects.toMatchObject({ name: 'CpuError', code: 'cancelled' });
    taken.answer();
    await first;
    const gone = made.queue.submit('f@1', tensorInput(3), { signal: controller.signal });
    await expect(gone).rejects.toMatchObject({ code: 'cancelled' });
  });

  test('the queue is bounded: one more than may wait is refused by name of the limit', async () => {
    const taker = new ScriptedTaker('one');
    await using made = await make([taker], 2);
    const submitted = [1, 2, 3].map((value) => made.queue.submit('f@1', tensorInput(value)));
    await expect(made.queue.submit('f@1', tensorInput(4))).rejects.toMatchObject({
      code: 'queue-full',
      message: expect.stringMatching(/\d.*limit/) as string,
    });
    taker.auto = true;
    (await taker.nth(1)).answer();
    for (const taken of taker.taken) taken.answer();
    expect(await Promise.all(submitted)).toHaveLength(3);
  });

  test('each of many invocations gets its own answer', async () => {
    const takers = [new ScriptedTaker('one'), new ScriptedTaker('two')];
    for (const taker of takers) {
      taker.auto = true;
      taker.slots = 4;
    }
    await using made = await make(takers, 1000);
    const results = await Promise.all(
      Array.from({ length: 200 }, (_, index) => made.queue.submit('f@1', tensorInput(index))),
    );
    expect(results.map(({ result }) => plain(result.output))).toEqual(
      results.map((_, index) => plain(tensorInput(index))),
    );
    expect(made.queue.state()).toMatchObject({ outstanding: 0, lateAnswers: 0 });
  });

  test('a stop waits for submitted invocations, accepts no new ones, and says so', async () => {
    const taker = new ScriptedTaker('one');
    await using made = await make([taker], 10);
    const submitted = made.queue.submit('f@1', tensorInput(1));
    const taken = await taker.nth(1);
    const stopped = made.queue.stop(5000);
    await expect(made.queue.submit('f@1', tensorInput(2))).rejects.toMatchObject({ code: 'stopping' });
    taken.answer();
    expect((await submitted).worker).toBe('one');
    await stopped;
  });

  test('a stop whose time is over gives up invocations without an answer', async () => {
    const taker = new ScriptedTaker('one');
    taker.slots = 1;
    await using made = await make([taker], 10);
    const first = made.queue.submit('f@1', tensorInput(1));
    const second = made.queue.submit('f@1', tensorInput(2));
    const outcomes = Promise.allSettled([first, second]);
    const taken = await taker.nth(1);
    await made.queue.stop(10);
    taken.answer();
    const [, late] = await outcomes;
    expect(late).toMatchObject({ status: 'rejected', reason: { code: 'stopping' } });
  });
}
