/** One level of the serving benchmark: a number of functions, warmed up, at a steady rate of Poisson arrivals. */
import { authorization, request } from '../../src/cli/client.ts';
import {
  metricsWatch,
  inferRequest,
  parseLiveInputs,
  poissonTrace,
  ReportBuilder,
  runLive,
  type LiveAnswer,
  type LiveRequest,
  type TraceInvocation,
} from '../../src/replay/index.ts';
import type { Report } from '../../src/report/index.ts';
import { besideSimulator, type BesideSimulator } from '../simulated/compare-simulated.ts';
import { openSnapshot, readScheduler } from '../simulated/host-snapshot.ts';
import type { ServingHost } from './subject.ts';

export interface LevelOptions {
  readonly functions: number;
  readonly ratePerS: number;
  /** Number of requests before the measurement, and in it. */
  readonly warmupRequests: number;
  readonly requests: number;
  readonly seed: number;
  readonly sloMs: number;
  readonly tightSloMs: number;
}

export interface Level {
  readonly functions: number;
  readonly report: Report;
  /** Share of the requests that were answered within the tight SLO. */
  readonly tightGoodput: number;
  readonly beside: BesideSimulator;
}

export async function measureLevel({ address, planned, snapshot }: ServingHost, options: LevelOptions): Promise<Level> {
  const { functions, ratePerS, warmupRequests, requests, seed, sloMs, tightSloMs } = options;
  const functionNames = planned.slice(0, functions);
  const made = await requestsOf(address.url, functionNames, seed);
  // The paper's warm-up: every function has been called, and is loaded as far as it fits.
  for (const { path, headers, body } of made) {
    const reply = await fetch(address.url + path, { method: 'POST', headers, body: Buffer.from(body) });
    if (reply.status !== 200) throw new Error(`${path} answers ${reply.status}: ${await reply.text()}`);
    await reply.arrayBuffer();
  }
  const { scheduler } = snapshot;
  const before = await openSnapshot(address, await readScheduler(address), functionNames);
  const trace = poissonTrace({ functionNames, ratePerS, requests: warmupRequests + requests, seed });
  const arrivals = [...trace.invocations()];
  const builder = new ReportBuilder({ fromMs: arrivals[warmupRequests]!.arrivalMs });
  const indices = new Map(functionNames.map((name, index) => [name, index]));
  const watch = metricsWatch(builder, (name) => indices.get(name));
  const readMetrics = async (atMs: number): Promise<void> =>
    watch(await (await request(address, '/metrics')).text(), atMs);
  let begun: Promise<void> | undefined;
  function* invocations(): Generator<TraceInvocation> {
    for (const [index, arrival] of arrivals.entries()) {
      // Evictions count from here on: metrics do not say when one occurred.
      if (index === warmupRequests) {
        begun = readMetrics(arrival.arrivalMs);
        // If the host is gone by then, the invocations fail as well.
        begun.catch(() => undefined);
      }
      yield arrival;
    }
  }
  const answers: LiveAnswer[] = [];
  await runLive(
    { functionNames, invocations },
    {
      url: address.url,
      headers: authorization(address),
      requestOf: (index) => made[index]!,
      sloMsOf: () => sloMs,
      observer: builder,
      onAnswer: (answer) => {
        answers[answer.outcome.sequence] = answer;
      },
    },
  );
  await begun;
  await readMetrics(arrivals.at(-1)!.arrivalMs);
  const context = {
    machine: scheduler.isEmulated ? 'the emulated GPUs of the host' : 'the GPUs of the host',
    seed,
    settings: { offers: 'host' },
    functionNames,
  };
  const report = builder.finish({ ...context, kind: 'measured', gpuCount: scheduler.gpus.length });
  const beside = besideSimulator(answers, {
    host: { ...before, nameOf: (index) => functionNames[index]! },
    warmupRequests,
    context,
  });
  const counted = answers.slice(warmupRequests);
  const inTight = counted.filter(
    ({ outcome: { placement, arrivalMs, endMs } }) =>
      (placement.kind === 'gpu' || placement.kind === 'cpu') && endMs - arrivalMs <= tightSloMs,
  );
  return { functions, report, tightGoodput: inTight.length / counted.length, beside };
}

/** The same request for each function, with different inputs. */
async function requestsOf(url: string, names: readonly string[], seed: number): Promise<LiveRequest[]> {
  const [first = ''] = names;
  const metadata: unknown = await (await fetch(`${url}/v2/models/${first}`)).json();
  const inputs = parseLiveInputs(metadata, first);
  return names.map((name, index) => inferRequest(name, inputs, { seed: seed + index, varyingSize: 1 }));
}
