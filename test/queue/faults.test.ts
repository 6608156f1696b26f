/**
 * Everything that can be killed is killed, in random order and under load: what was accepted is answered, once, with its
 * own answer. For a synchronous call whose host was killed the broken connection is no acceptance: its client tries again.
 */
import { spawn, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { setTimeout as delay } from 'node:timers/promises';
import { describe, expect, test } from 'vitest';
import { packageRoot } from '../../src/host/config-options.ts';
import { ElementType, GraphBuilder, writeModel } from '../../src/onnx/index.ts';
import { redisMissing, RedisServer } from '../support/redis-server.ts';

const seed = Number(process.env['TURNTABLE_SEED']);
const stormMs = 60_000;
const settleMs = 35_000;
const syncClients = 6;

describe.skipIf(redisMissing !== undefined)('under load', () => {
  test(
    'with instances, workers, host and Redis killed at random, every accepted call is answered once',
    { timeout: stormMs + settleMs + 40_000 },
    async () => {
      await using system = await System.start();
      const random = lcg(seed);
      const sync = new SyncLoad(system);
      const async = new AsyncLoad(system);
      const clients = [...Array.from({ length: syncClients }, () => sync.client()), async.client()];
      const kills: Record<string, number> = {};
      const endMs = performance.now() + stormMs;
      while (performance.now() < endMs) {
        // Time has to pass under load between two kills; there is no event to wait for.
        await delay(150 + 450 * random());
        const victim = victims[Math.floor(random() * victims.length)] ?? 'instance';
        if (system.kill(victim, random)) kills[victim] = (kills[victim] ?? 0) + 1;
      }
      await system.restored();
      // On a machine so busy that a host takes seconds to start, the storm left little room for answers.
      const lateMs = performance.now() + 10_000;
      while ((sync.answered <= 10 || async.accepted.size === 0) && performance.now() < lateMs) await delay(50);
      sync.stop();
      async.stop();
      await Promise.all(clients);
      await async.collect(performance.now() + settleMs);
      console.log(
        `seed ${seed}, killed ${JSON.stringify(kills)}: ${sync.answered} synchronous calls answered ` +
          `(${sync.retries} tries again, refused ${JSON.stringify(sync.refusals)}), ${async.accepted.size} asynchronous ones; ` +
          `${async.callbacks.size} called back, ${async.callbacksTwice} of them twice`,
      );
      expect(sync.wrong).toEqual([]);
      expect(async.wrong).toEqual([]);
      // Few on a machine that has much else to do, thousands on one that has not.
      expect(sync.answered).toBeGreaterThan(10);
      expect(async.accepted.size).toBeGreaterThan(0);
      expect(Object.values(kills).reduce((sum, count) => sum + count, 0)).toBeGreaterThan(5);
      expect([...async.replies.keys()].toSorted()).toEqual([...async.accepted].toSorted());
      const calledBack = [...async.callbacks.keys()].filter((id) => !async.unknown.has(id));
      expect(calledBack.toSorted()).toEqual([...async.accepted].toSorted());
    },
  );
});

const victims = ['instance', 'worker-instance', 'worker', 'host', 'redis'] as const;
type Victim = (typeof victims)[number];

/** Host, two workers, Redis and whoever is called back. */
class System implements AsyncDisposable {
  readonly folder: string;
  readonly redis: RedisServer;
  readonly callbackUrl: string;
  onCallback: (id: string, body: string) => void = () => undefined;
  url = '';
  /** Rises when a host is killed, and when the next one is there: a call that saw it change had no living host. */
  hostChanges = 0;
  readonly #callbackServer;
  readonly #children = new Map<string, ChildProcess>();
  readonly #replacing = new Map<string, Promise<void>>();
  #failure: Error | undefined;

  private constructor(folder: string, redis: RedisServer, server: ReturnType<typeof createServer>) {
    this.folder = folder;
    this.redis = redis;
    this.#callbackServer = server;
    this.callbackUrl = `http://127.0.0.1:${(server.address() as AddressInfo).port}/reply`;
  }

  static async start(): Promise<System> {
    const folder = await mkdtemp(join(tmpdir(), 'turntable-faults-'));
    const place = join(folder, 'functions', 'busy');
    await mkdir(place, { recursive: true });
    await writeModel(busyGraph().build(), join(place, 'model.onnx'));
    await writeFile(join(place, 'function.json'), '{"slo": "1s"}');
    const handle: { to?: System } = {};
    const server = createServer((request, response) => {
      void receive(request, response, (id, body) => handle.to?.onCallback(id, body));
    });
    server.listen(0, '127.0.0.1');
    await once(server, 'listening');
    const system = new System(folder, await RedisServer.start({ durable: true }), server);
    handle.to = system;
    try {
      await system.#startHost();
      await Promise.all([system.#startWorker('worker1'), system.#startWorker('worker2')]);
    } catch (error) {
      await system[Symbol.asyncDispose]();
      throw error;
    }
    return system;
  }

  /** Kills one, and starts it again in the background. False: it is not there at the moment. */
  kill(victim: Victim, random: () => number): boolean {
    const worker = random() < 0.5 ? 'worker1' : 'worker2';
    switch (victim) {
      case 'instance':
        return this.#killInstance('host', random);
      case 'worker-instance':
        return this.#killInstance(worker, random);
      case 'worker':
        return this.#replace(worker, async () => {
          await this.#end(worker);
          await this.#startWorker(worker);
        });
      case 'host':
        return this.#replace('host', async () => {
          this.hostChanges++;
          await this.#end('host');
          await this.#startHost();
          this.hostChanges++;
        });
      case 'redis': {
        const awayMs = 500 * random();
        return this.#replace('redis', async () => {
          await this.redis.kill();
          await delay(awayMs);
          await this.redis.start();
        });
      }
    }
  }

  /** Resolves when everything that was killed is there again. */
  async restored(): Promise<void> {
    await Promise.all(this.#replacing.values());
    if (this.#failure !== undefined) throw this.#failure;
  }

  #replace(name: string, work: () => Promise<void>): boolean {
    if (this.#replacing.has(name)) return false;
    const done = work()
      .catch((error: unknown) => {
        this.#failure ??= error instanceof Error ? error : new Error(String(error));
      })
      .finally(() => this.#replacing.delete(name));
    this.#replacing.set(name, done);
    return true;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await Promise.all([...this.#children.keys()].map((name) => this.#end(name)));
    await this.redis[Symbol.asyncDispose]();
    this.#callbackServer.closeAllConnections();
    this.#callbackServer.close();
    await rm(this.folder, { recursive: true, force: true });
  }

  async #startHost(): Promise<void> {
    const words = ['serve', '--port', '0', '--data', join(this.folder, 'data'), '--cpu-cores', '1'];
    const functions = ['--functions', join(this.folder, 'functions'), '--redis', this.redis.url];
    const line = await this.#spawn('host', [...words, ...functions, '--log-level', 'warn'], /ready at (http:\S+)/);
    this.url = line;
  }

  async #startWorker(name: string): Promise<void> {
    const words = ['worker', '--redis', this.redis.url, '--name', name, '--cores', '1', '--log-level', 'warn'];
    await this.#spawn(name, [...words, '--data', join(this.folder, name)], /(takes overflow)/);
  }

  async #spawn(name: string, words: readonly string[], ready: RegExp): Promise<string> {
    const child = spawn(process.execPath, [join(packageRoot, 'bin', 'turntable.js'), ...words], {
      cwd: packageRoot,
      stdio: ['ignore', 'pipe', 'pipe'],
    });
    this.#children.set(name, child);
    let stderr = '';
    child.stderr.setEncoding('utf8').on('data', (text: string) => (stderr = (stderr + text).slice(-2000)));
    return await new Promise<string>((resolve, reject) => {
      createInterface(child.stdout).on('line', (line) => {
        const found = ready.exec(line)?.[1];
        if (found !== undefined) resolve(found);
      });
      child.once('exit', (code) => reject(new Error(`${name} ended with exit code ${code}: ${stderr}`)));
    });
  }

  async #end(name: string): Promise<void> {
    const child = this.#children.get(name);
    if (child === undefined || child.exitCode !== null || child.signalCode !== null) return;
    child.kill('SIGKILL');
    await once(child, 'exit');
  }

  #killInstance(of: string, random: () => number): boolean {
    const pid = this.#children.get(of)?.pid;
    const instances = pid === undefined ? [] : childrenOf(pid).filter(isInstance);
    const victim = instances[Math.floor(random() * instances.length)];
    if (victim === undefined) return false;
    try {
      process.kill(victim, 'SIGKILL');
      return true;
    } catch {
      return false; // It went by itself.
    }
  }
}

/** Clients that wait for each answer. */
class SyncLoad {
  answered = 0;
  retries = 0;
  /** Answers of 503 by code. */
  readonly refusals: Record<string, number> = {};
  readonly wrong: string[] = [];
  readonly #system: System;
  #next = 1;
  #stopped = false;

  constructor(system: System) {
    this.#system = system;
  }

  stop(): void {
    this.#stopped = true;
  }

  async client(): Promise<void> {
    while (!this.#stopped) {
      const value = (this.#next++ % 4000) + 1;
      for (;;) {
        const { url, hostChanges } = this.#system;
        try {
          const reply = await fetch(`${url}/function/busy`, {
            method: 'POST',
            body: JSON.stringify({ input: [[value]] }),
          });
          const body = await reply.text();
          if (reply.status === 503) {
            // Told to come again: nothing was accepted.
            const code = reply.headers.get('x-turntable-error') ?? '';
            this.refusals[code] = (this.refusals[code] ?? 0) + 1;
          } else {
            if (!isAnswerTo(value, reply.status, body)) this.wrong.push(`${value}: ${reply.status} ${body}`);
            this.answered++;
            break;
          }
        } catch (error) {
          await delay(20);
          const alive = this.#system.hostChanges === hostChanges && hostChanges % 2 === 0;
          if (alive) this.wrong.push(`${value}: no answer of a living host: ${String(error)}`);
        }
        this.retries++;
        await delay(20);
      }
    }
  }
}

/** A client that hands calls over, with ids of its own, and asks for the replies at the end. */
class AsyncLoad {
  readonly accepted = new Set<string>();
  /** Sent, and the connection was lost before an answer came when the storm ended: accepted or not, the client cannot know. */
  readonly unknown = new Set<string>();
  readonly replies = new Map<string, string>();
  readonly callbacks = new Map<string, string>();
  callbacksTwice = 0;
  readonly wrong: string[] = [];
  readonly #system: System;
  #next = 1;
  #stopped = false;

  constructor(system: System) {
    this.#system = system;
    system.onCallback = (id, body) => {
      const before = this.callbacks.get(id);
      if (before === undefined) this.callbacks.set(id, body);
      else {
        this.callbacksTwice++;
        if (before !== body) this.wrong.push(`${id}: two different replies called back: ${before} and ${body}`);
      }
    };
  }

  #allCalledBack(): boolean {
    return [...this.accepted].every((id) => this.callbacks.has(id));
  }

  stop(): void {
    this.#stopped = true;
  }

  async client(): Promise<void> {
    while (!this.#stopped) {
      const id = `call-${this.#next++}`;
      // The id makes trying again safe: whatever was accepted before is not run twice.
      while (!(await this.#submit(id))) {
        // No acceptance, in the end: the client gives up with the storm.
        if (this.#stopped) {
          this.unknown.add(id);
          return;
        }
        await delay(50);
      }
      this.accepted.add(id);
      await delay(10);
    }
  }

  async #submit(id: string): Promise<boolean> {
    try {
      const reply = await fetch(`${this.#system.url}/async-function/busy`, {
        method: 'POST',
        headers: { 'x-call-id': id, 'x-callback-url': this.#system.callbackUrl },
        body: JSON.stringify({ input: [[valueOf(id)]] }),
      });
      const body = await reply.text();
      if (reply.status === 202) return true;
      if (reply.status !== 503) this.wrong.push(`${id}: ${reply.status} ${body}`);
      return false;
    } catch {
      return false;
    }
  }

  /** Asks for every reply until it is there, and waits for the callbacks. */
  async collect(untilMs: number): Promise<void> {
    for (const id of this.accepted) {
      for (;;) {
        const reply = await fetch(`${this.#system.url}/async-function/${id}`).catch(() => undefined);
        const body = await reply?.text();
        if (reply !== undefined && body !== undefined && reply.status !== 202 && reply.status !== 503) {
          if (!isAnswerTo(valueOf(id), reply.status, body)) this.wrong.push(`${id}: ${reply.status} ${body}`);
          this.replies.set(id, body);
          break;
        }
        if (performance.now() > untilMs) return;
        await delay(50);
      }
    }
    while (!this.#allCalledBack() && performance.now() < untilMs) await delay(50);
    for (const [id, body] of this.callbacks) {
      if (this.replies.has(id) && this.replies.get(id) !== body) this.wrong.push(`${id}: called back with ${body}`);
    }
  }
}

const valueOf = (id: string): number => (Number(id.slice('call-'.length)) % 4000) + 1;

function isAnswerTo(value: number, status: number, body: string): boolean {
  // A model that kills two instances in a row is told so; here it was our own doing.
  if (status === 500) return body.includes('instance');
  if (status !== 200) return false;
  const { output } = JSON.parse(body) as { output: number[][] };
  return Math.abs((output[0]?.[0] ?? Number.NaN) - value) <= value * 1e-4;
}

async function receive(
  request: IncomingMessage,
  response: ServerResponse,
  tell: (id: string, body: string) => void,
): Promise<void> {
  const chunks: Buffer[] = [];
  try {
    for await (const chunk of request as AsyncIterable<Buffer>) chunks.push(chunk);
  } catch {
    return; // The host was killed while it was sending; it comes again.
  }
  tell(String(request.headers['x-call-id']), Buffer.concat(chunks).toString());
  response.end();
}

function childrenOf(pid: number): number[] {
  try {
    const text = readFileSync(`/proc/${pid}/task/${pid}/children`, 'utf8').trim();
    return text === '' ? [] : text.split(' ').map(Number);
  } catch {
    return [];
  }
}

function isInstance(pid: number): boolean {
  try {
    return readFileSync(`/proc/${pid}/cmdline`, 'utf8').includes('instance-process');
  } catch {
    return false;
  }
}

/** y = x, by way of some milliseconds of work. */
function busyGraph(): GraphBuilder {
  const [rows, width] = [16, 512];
  const graph = new GraphBuilder('busy');
  const x = graph.input('x', ElementType.FLOAT, [1, 1]);
  const ones = graph.weight('expand', [1, rows * width], new Float32Array(rows * width).fill(1));
  let hidden = graph.node('Reshape', [graph.node('MatMul', [x, ones]), graph.constant({ ints: [rows, width] })]);
  for (let layer = 0; layer < 8; layer++) {
    const weight = graph.weight(`layer.${layer}`, [width, width], new Float32Array(width * width).fill(1 / width));
    hidden = graph.node('MatMul', [hidden, weight]);
  }
  graph.output(graph.node('ReduceMean', [hidden], { axes: [0, 1] }), ElementType.FLOAT, [1, 1], 'y');
  return graph;
}

/** Numerical Recipes' linear congruential generator, in [0, 1). */
function lcg(start: number): () => number {
  let state = start >>> 0;
  return () => (state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0) / 2 ** 32;
}
