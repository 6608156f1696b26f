/** `turntable replay --live`: the same load and the same report, measured at a running host. */
import { readFileSync } from 'node:fs';
import { Command, Option, type OptionsOf } from '../commander.ts';
import {
  metricsWatch,
  inferRequest,
  parseLiveInputs,
  ReportBuilder,
  runLive,
  type FunctionGroup,
  type LiveRequest,
  type LiveRun,
  type TraceInvocation,
} from '../../replay/index.ts';
import type { Report } from '../../report/index.ts';
import { authorization, hostAddress, request, urlOption, type HostAddress } from '../client.ts';
import { CliError, usage } from '../error.ts';
import { Interruption } from '../interruption.ts';
import { startCountProgress } from '../progress.ts';
import { checkMeasured, groupsOf, openLoad, type GroupOptions, type Load, type LoadOptions } from './load.ts';
import type { RowsFile } from './rows.ts';
import { commonSloMs, valueFor, sloMsDefault, type MeasureFlags } from './slo.ts';
import { isRecord, parseCount, parseDurationMs, parseNamedFiles, parsePositive } from '../values.ts';
import { given } from '../../tools/index.ts';

export function liveFlags() {
  return new Command()
    .optionsGroup('At a running host:')
    .option('--live', 'fire the requests at a running host; --functions are then its functions')
    .addOption(urlOption())
    .addOption(
      new Option(
        '--body <name=file>',
        'with --live: post this file to the function instead of made-up tensors',
      ).argParser(parseNamedFiles),
    )
    .option('--varying-size <number>', 'with --live: sizes that a model leaves open, beside the batch', parseCount, 16)
    .option('--speed <factor>', 'with --live: faster than the trace by this factor', parsePositive, 1)
    .addOption(
      new Option('--timeout <time>', 'with --live: longest wait for an answer')
        .argParser(parseDurationMs)
        .default(60_000, '60s'),
    );
}

type LiveOptions = OptionsOf<ReturnType<typeof liveFlags>>;

type LiveReplayOptions = LiveOptions & LoadOptions & GroupOptions & MeasureFlags;

/** A function of the host, with the host's SLO for it. */
interface LiveFunction {
  readonly request: LiveRequest;
  readonly sloMs: number;
}

/** How often the host's metrics are read for evictions and changes of plan. Reading them uses no function. */
const watchMs = 10_000;

/** @param rows the file that gets a row for each measured request */
export async function replayLive(options: LiveReplayOptions, rows?: RowsFile): Promise<Report> {
  const { warmup = 0, speed } = options;
  const host = hostAddress(options.url);
  const recorded = options.trace !== undefined && options.functions === undefined;
  const groups = groupsOf(options) ?? (recorded ? undefined : await listFunctions(host));
  const load = await openLoad(options, groups);
  const { functionNames } = load.trace;
  const models = [...new Set(functionNames.map((_, index) => load.modelOf(index)))];
  const functions = new Map<string, LiveFunction>();
  for (const model of models) functions.set(model, await prepare(host, model, options));
  const functionOf = (index: number): LiveFunction => functions.get(load.modelOf(index))!;
  const scheduler = await readScheduler(host);

  const builder = new ReportBuilder({ onMeasured: rows?.of({ seed: options.seed, functionNames }) });
  /** An SLO of --slo counts before the trace's, and both before the host's. */
  const withSlo = (invocation: TraceInvocation): TraceInvocation => {
    const { functionIndex: index } = invocation;
    const sloMs = valueFor(options.slo, { name: functionNames[index] ?? '', model: load.modelOf(index), index });
    return sloMs === undefined ? invocation : { ...invocation, sloMs };
  };
  function* counted(): Generator<TraceInvocation> {
    for (const invocation of builder.measured(load.trace.invocations(), warmup, speed)) yield withSlo(invocation);
  }
  const firstOf = new Map(functionNames.map((_, index) => [load.modelOf(index), index] as const).reverse());
  const stopWatching = await watchMetrics(
    host,
    metricsWatch(builder, (name) => firstOf.get(name)),
  );
  const progress = startCountProgress('replay', load.requestsExpected ?? 0, 'requests');
  using interrupted = new Interruption(['SIGINT']);
  let run: LiveRun;
  try {
    run = await runLive(
      { functionNames, invocations: counted },
      {
        url: host.url,
        headers: authorization(host),
        requestOf: (index) => functionOf(index).request,
        sloMsOf: (index) => functionOf(index).sloMs,
        observer: builder,
        timeoutMs: options.timeout,
        speed,
        signal: interrupted.signal,
        onProgress: (sent, answered) =>
          progress.update(sent, sent === answered ? 'replay' : `replay, ${sent - answered} under way`),
      },
    );
  } finally {
    progress[Symbol.dispose]();
    await stopWatching();
  }
  if (interrupted.signal.aborted) process.stderr.write('turntable: interrupted; the report covers what was sent\n');
  return reportOf(host, options, {
    load,
    functions,
    builder,
    run,
    scheduler,
    interrupted: interrupted.signal.aborted,
  });
}

interface Replayed {
  readonly load: Load;
  readonly functions: ReadonlyMap<string, LiveFunction>;
  readonly builder: ReportBuilder;
  readonly run: LiveRun;
  readonly scheduler: SchedulerWords;
  readonly interrupted: boolean;
}

function reportOf(
  host: HostAddress,
  { seed, slo, warmup = 0, speed, timeout, varyingSize }: LiveReplayOptions,
  { load, functions, builder, run, scheduler, interrupted }: Replayed,
): Report {
  const slos = new Set(Array.from(functions.values(), ({ sloMs }) => sloMs));
  const hostSloMs = slos.size === 1 ? [...slos][0]! : null;
  const report = builder.finish({
    kind: 'measured',
    machine: `the host at ${host.url}${scheduler.isEmulated ? ' (emulated GPUs: times mean nothing)' : ''}`,
    seed,
    functionNames: load.trace.functionNames,
    modelOf: load.modelOf,
    settings: {
      ...load.settings,
      ...given({ plan: scheduler.plan, policy: scheduler.policy }),
      slo_ms: slo === undefined ? (load.hasOwnSlo ? null : hostSloMs) : commonSloMs(slo),
      ...given({ slo: slo?.text }),
      warmup_requests: warmup,
      speed,
      timeout_ms: timeout,
      varying_size: varyingSize,
      send_delay_p99_ms: run.sent === 0 ? null : Math.round(run.sendDelayMs.quantile(0.99) * 1000) / 1000,
      started_at: new Date(performance.timeOrigin).toISOString(),
      interrupted,
    },
  });
  if (!interrupted) checkMeasured(report);
  return report;
}

/** What a report says of the host's scheduler. */
interface SchedulerWords {
  readonly isEmulated: boolean;
  readonly plan: string | undefined;
  readonly policy: string | undefined;
}

/** Other servers of the protocol do not describe theirs. */
async function readScheduler(host: HostAddress): Promise<SchedulerWords> {
  try {
    const json: unknown = await (await request(host, '/api/scheduler')).json();
    if (!isRecord(json)) return noScheduler;
    const { status, mode, policy, isEmulated } = json;
    const name = isRecord(policy) ? policy['name'] : undefined;
    const text = (value: unknown): string | undefined =>
      status === 'up' && typeof value === 'string' ? value : undefined;
    return { isEmulated: isEmulated === true, plan: text(mode), policy: text(name) };
  } catch {
    return noScheduler;
  }
}

const noScheduler: SchedulerWords = { isEmulated: false, plan: undefined, policy: undefined };

/** Every function of the host that is ready. */
async function listFunctions(host: HostAddress): Promise<FunctionGroup[]> {
  const response = await request(host, '/v2/repository/index', {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: '{"ready":true}',
  });
  const index: unknown = await response.json();
  const names = Array.isArray(index)
    ? index.flatMap((entry: unknown) => {
        const { name } = (entry ?? {}) as { name?: unknown };
        return typeof name === 'string' ? [name] : [];
      })
    : [];
  if (names.length === 0) throw new CliError(`the host at ${host.url} has no function that is ready`);
  return [...new Set(names)].map((model) => ({ model, count: 1 }));
}

async function prepare(host: HostAddress, model: string, options: LiveReplayOptions): Promise<LiveFunction> {
  const path = `/v2/models/${encodeURIComponent(model)}`;
  const sloMs = await sloOf(host, path);
  const file = options.body?.get(model);
  if (file !== undefined) {
    const body = readBody(file);
    const headers = { 'content-type': file.endsWith('.json') ? 'application/json' : 'application/octet-stream' };
    return { sloMs, request: { path: `/function/${encodeURIComponent(model)}`, headers, body } };
  }
  const inputs = parseLiveInputs(await (await request(host, path)).json(), model);
  const made = inferRequest(model, inputs, { seed: options.seed, varyingSize: options.varyingSize });
  return { sloMs, request: made };
}

function readBody(file: string): Buffer {
  try {
    return readFileSync(file);
  } catch (error) {
    throw usage(`the body ${file} cannot be read: ${(error as Error).message}`);
  }
}

/** The objective that the host states for the function; other servers of the protocol state none. */
async function sloOf(host: HostAddress, path: string): Promise<number> {
  try {
    const config = (await (await request(host, `${path}/config`)).json()) as {
      parameters?: { slo?: { string_value?: unknown } };
    };
    const text = config.parameters?.slo?.string_value;
    return typeof text === 'string' ? parseDurationMs(text) : sloMsDefault;
  } catch {
    return sloMsDefault;
  }
}

/** Reads the metrics now, every ten seconds, and at the end. A host may have none. */
async function watchMetrics(host: HostAddress, watch: ReturnType<typeof metricsWatch>): Promise<() => Promise<void>> {
  const startMs = performance.now();
  const read = async (): Promise<void> => {
    try {
      const response = await request(host, '/metrics');
      watch(await response.text(), performance.now() - startMs);
    } catch {
      // This reading failed; the next one counts from the last that succeeded.
    }
  };
  await read();
  const timer = setInterval(() => void read(), watchMs);
  return async () => {
    clearInterval(timer);
    await read();
  };
}
