/** Hosts in which a fault is planted, called and asked as a user would. */
import { request } from 'node:http';
import { setTimeout as pause } from 'node:timers/promises';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { isDeepStrictEqual } from 'node:util';
import type { MissCause } from '../../src/host/calls/miss-causes.ts';
import type { FunctionAnswer, TroubleAnswer, TroubleRow } from '../../src/host/dashboard/index.ts';
import type { GraphBuilder } from '../../src/onnx/index.ts';
import { turntable } from '../../test/cli/command.ts';
import { sumGraph } from '../chaos/models.ts';
import { instancePids, Servers, type StartedServer } from '../servers.ts';

/** Looks at all places until none has changed meanwhile. */
const looksMax = 5;

/** Waits 150 ms. */
export const slowHandler = `
export async function preprocess() {
  await new Promise((resolve) => setTimeout(resolve, 150));
  return [{ name: 'x', datatype: 'FP32', shape: [1, 1], data: [1] }];
}
export const postprocess = () => 'ok';
`;

/** Keeps its thread for 150 ms. */
export const blockingHandler = slowHandler.replace(
  'await new Promise((resolve) => setTimeout(resolve, 150));',
  'for (const endMs = Date.now() + 150; Date.now() < endMs;);',
);

/** What is said of a function, in all places. */
export interface Said {
  readonly row: TroubleRow | undefined;
  readonly top: string;
  /** Whether the page and /metrics count the same since the host's start: the page has calls that are open as well. */
  readonly countsAgree: boolean;
}

export class Scene {
  readonly host: StartedServer;
  /** With its functions and its data. */
  readonly folder: string;

  constructor(host: StartedServer, folder: string) {
    this.host = host;
    this.folder = folder;
  }

  /** Returns the status; 0 if the client left, or the host did not answer. */
  async call(name: string, signal?: AbortSignal, body = '{"input":[[1]]}', headers = {}): Promise<number> {
    return (await this.reply(name, { body, headers, ...(signal && { signal }) }))?.status ?? 0;
  }

  /** Undefined as above. */
  async reply(name: string, options: RequestInit = {}): Promise<Response | undefined> {
    const init = { method: 'POST', body: '{"input":[[1]]}', ...options };
    return await fetch(`${this.host.url}/function/${name}`, init).then(
      async (reply) => {
        await reply.arrayBuffer();
        return reply;
      },
      () => undefined,
    );
  }

  /** Calls it, and sends the second half of the body after `pauseMs`. */
  async callSlowly(name: string, pauseMs: number, body = '{"input":[[1]]}'): Promise<void> {
    const sent = request(`${this.host.url}/function/${name}`, { method: 'POST' });
    const over = new Promise<void>((resolve, reject) => {
      sent.on('response', (reply) => reply.resume().on('end', resolve));
      sent.on('error', reject);
    });
    sent.write(body.slice(0, body.length / 2));
    await pause(pauseMs);
    sent.end(body.slice(body.length / 2));
    await over;
  }

  async unload(name: string): Promise<void> {
    await fetch(`${this.host.url}/v2/repository/models/${name}/unload`, { method: 'POST' });
  }

  async trouble(range = '1m'): Promise<TroubleAnswer> {
    return (await (await fetch(`${this.host.url}/api/trouble?range=${range}`)).json()) as TroubleAnswer;
  }

  async row(name: string): Promise<TroubleRow | undefined> {
    return (await this.trouble()).worst.find((each) => each.name === name);
  }

  /** What the function's own page says. */
  async ofFunction(name: string): Promise<TroubleRow | null> {
    const answer = await fetch(`${this.host.url}/api/functions/${name}?range=1m`);
    return ((await answer.json()) as FunctionAnswer).trouble;
  }

  /** All places, asked while no call ended between them: one after the other, a call would be told by the later alone. */
  async said(name: string): Promise<Said> {
    for (let look = 1; ; look++) {
      const before = await this.metrics(name);
      const [row, top] = [await this.row(name), await this.top()];
      const whole = (await this.trouble('15m')).worst.find((each) => each.name === name);
      const [again, metrics] = [await this.row(name), await this.metrics(name)];
      const isStill = isDeepStrictEqual([before, row?.causes], [metrics, again?.causes]);
      if (!isStill && look < looksMax) continue;
      const { causes = [], overdue = { calls: 0 } } = whole ?? {};
      const open = causes.map(({ cause, calls }) => calls - (metrics[cause] ?? 0));
      const openCalls = open.reduce((sum, calls) => sum + calls, 0);
      return { row, top, countsAgree: open.every((calls) => calls >= 0) && openCalls === overdue.calls };
    }
  }

  async metricsText(): Promise<string> {
    return await (await fetch(`${this.host.url}/metrics`)).text();
  }

  /** Missed calls by cause, of /metrics. */
  async metrics(name: string): Promise<Partial<Record<MissCause, number>>> {
    const text = await this.metricsText();
    const lines = text.matchAll(
      new RegExp(`^turntable_missed_total\\{function="${name}",cause="(\\w+)"\\} (\\d+)`, 'gm'),
    );
    return Object.fromEntries(Array.from(lines, ([, cause, count]) => [cause, Number(count)]));
  }

  /** Milliseconds of all calls beyond their SLO, and those of them that nothing explains. */
  async missedTime(): Promise<{ readonly lateMs: number; readonly unexplainedMs: number }> {
    const lines = (await this.metricsText()).matchAll(
      /^turntable_missed_seconds_total\{.*explained="(\w+)"\} (\S+)$/gm,
    );
    let [lateMs, unexplainedMs] = [0, 0];
    for (const [, explained, seconds] of lines) {
      lateMs += Number(seconds) * 1000;
      if (explained === 'no') unexplainedMs += Number(seconds) * 1000;
    }
    return { lateMs, unexplainedMs };
  }

  async top(): Promise<string> {
    return (await turntable(['top', '--once', '--url', this.host.url])).stdout;
  }
}

export interface SceneFunction {
  readonly settings?: object;
  /** Its text. */
  readonly handler?: string;
  /** Default: a sum of one number. */
  readonly model?: GraphBuilder;
}

export type SceneFunctions = Readonly<Record<string, SceneFunction>>;

/** Starts a host with these functions, and ends it when `act` has ended. */
export async function scene(
  functions: SceneFunctions,
  flags: readonly string[],
  act: (scene: Scene) => Promise<void>,
  environment: Readonly<Record<string, string>> = { TURNTABLE_GPU_USE: 'off' },
): Promise<void> {
  await using servers = await Servers.create();
  for (const [name, { settings = {}, handler, model = sumGraph(1) }] of Object.entries(functions)) {
    const own = handler === undefined ? settings : { ...settings, handler: 'handler.mjs' };
    await servers.addFunction(name, model, own);
    if (handler !== undefined) await writeFile(join(servers.folder, 'functions', name, 'handler.mjs'), handler);
  }
  const host = await servers.startHost(flags, environment);
  try {
    await act(new Scene(host, servers.folder));
  } finally {
    // One that was stopped before it asked the kernel to end it with its host would stay.
    const instances = await instancePids(host.process);
    host.process.kill('SIGKILL');
    for (const pid of instances) endIfThere(pid);
  }
}

function endIfThere(pid: number): void {
  try {
    process.kill(pid, 'SIGKILL');
  } catch {
    // It ended with its host.
  }
}
