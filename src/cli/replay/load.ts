/** The load of a replay: a trace file or a generator, and the functions that it invokes. */
import { Command, type OptionsOf } from '../commander.ts';
import {
  azureLikeTrace,
  burstTrace,
  diurnalTrace,
  functionOrders,
  instanceNames,
  limitTrace,
  openTrace,
  orderGroups,
  paperMix,
  poissonTrace,
  type ArrivalOptions,
  type FunctionGroup,
  type FunctionOrder,
  type Popularity,
  type Trace,
} from '../../replay/index.ts';
import type { Report, SettingValue } from '../../report/index.ts';
import { CliError, usage } from '../error.ts';
import { flagOf, oneOf, parseCount, parseDurationMs, parseFunctionGroups, parsePositive } from '../values.ts';
import { parseSeed, parseShare, parseSkew } from '../values.ts';
import { given } from '../../tools/index.ts';

/** The load of a replay. */
export interface Load {
  readonly trace: Trace;
  readonly modelOf: (functionIndex: number) => string;
  /** About how many invocations it has; undefined where only its duration is known. */
  readonly requestsExpected: number | undefined;
  /** Some invocations of the trace have an objective of their own. */
  readonly hasOwnSlo: boolean;
  readonly settings: Readonly<Record<string, SettingValue>>;
}

export function loadFlags() {
  return new Command()
    .optionsGroup('The load:')
    .option('--trace <file>', 'replay a trace, recorded or converted (.gz too)')
    .option(
      '--poisson <rate>',
      'or generate arrivals: so many requests per second, independent of each other',
      parsePositive,
    )
    .option('--bursts <rate>', 'with bursts: five times the rate, on a tenth of the functions', parsePositive)
    .option('--burst-height <factor>', 'with --bursts: the rate in a burst over that outside', parsePositive)
    .option('--burst-width <share>', 'with --bursts: 1 for bursts of all functions', parseShare)
    .option('--diurnal <rate>', 'rising and falling over a day', parsePositive)
    .option('--azure-like <rate>', 'sustained, fluctuating, spiky and rare functions', parsePositive)
    .option(
      '--requests <number>',
      'end after so many requests; generated ones end after 10,000 where nothing else is said',
      parseCount,
    )
    .option('--duration <time>', 'end after this time of the trace, such as 3h', parseDurationMs)
    .option('--from <time>', 'begin at this time of the trace', parseDurationMs)
    .option('--rate <rate>', 'scale a trace to so many requests per second on average', parsePositive)
    .option('--zipf <exponent>', 'popularity of generated requests; uniform without', parsePositive)
    .option('--skew <shares>', 'or 99/1: 99% of the generated requests on 1% of the functions', parseSkew)
    .option(
      '--assign <order>',
      `which functions, most popular first in a trace, are of which model: ${functionOrders.join(', ')}`,
      oneOf(functionOrders),
      'mixed',
    )
    .option('--seed <integer>', 'the same seed gives the same requests', parseSeed, 0);
}

export type LoadOptions = OptionsOf<ReturnType<typeof loadFlags>>;

/** The warnings of several replays, each once, as a field of their common report. */
export const warningsOf = (warnings: readonly string[]): { readonly warnings?: readonly string[] } =>
  warnings.length === 0 ? {} : { warnings: [...new Set(warnings)] };

/** @throws CliError where a report counts no request, with the reason */
export function checkMeasured({ requests, warmup_requests: leftOut }: Report): void {
  if (requests > 0) return;
  throw new CliError(
    leftOut > 0
      ? `no request was measured: --warmup leaves out the first ${leftOut.toLocaleString('en-US')}, and there are no more`
      : 'no request was replayed: none arrives within --duration',
  );
}

/** The DeepPlan artifact's client measures this many at 100 requests per second. */
const requestsDefault = 10_000;

const sources = ['trace', 'poisson', 'bursts', 'diurnal', 'azureLike'] as const;

/**
 * Opens or generates the load. Without groups, the name of each function of a trace says its model: "bert-base/3" is of
 * the model bert-base.
 */
export async function openLoad(options: LoadOptions, groups: readonly FunctionGroup[] | undefined): Promise<Load> {
  const chosen = sources.filter((source) => options[source] !== undefined);
  const [source] = chosen;
  if (source === undefined || chosen.length > 1) {
    throw usage(`the load must come from one of ${sources.map(flagOf).join(', ')}`);
  }
  const load = source === 'trace' ? await fromFile(options, groups) : generated(source, options, groups);
  if (options.requests === undefined) return load;
  const { requests } = options;
  return {
    ...load,
    trace: limitTrace(load.trace, requests),
    requestsExpected: Math.min(requests, load.requestsExpected ?? Infinity),
  };
}

async function fromFile(options: LoadOptions, groups: readonly FunctionGroup[] | undefined): Promise<Load> {
  const { trace: file = '', seed, from, duration, rate, assign } = options;
  for (const flag of ['zipf', 'skew', 'burstHeight', 'burstWidth'] as const) {
    if (options[flag] !== undefined)
      throw usage(`${flagOf(flag)} goes with generated requests; a trace says itself when each function is called`);
  }
  const fromMs = from ?? 0;
  const order = groups === undefined ? undefined : orderGroups(groups, assign, seed);
  const opened = await openTrace(file, {
    seed,
    fromMs,
    ...(duration === undefined ? undefined : { toMs: fromMs + duration }),
    ...given({ ratePerS: rate }),
    ...(order === undefined ? undefined : { fold: order.length }),
  });
  const named = groups === undefined || order === undefined ? undefined : instances(groups, order);
  const functionNames = named?.functionNames ?? opened.functionNames;
  return {
    trace: { functionNames, invocations: () => opened.invocations() },
    modelOf: named?.modelOf ?? ((index) => modelOfName(functionNames[index] ?? '')),
    requestsExpected: opened.requestsExpected,
    hasOwnSlo: opened.hasOwnSlo,
    settings: {
      load: 'trace',
      trace: file,
      trace_functions: opened.fileFunctions,
      rate_per_s: rate ?? null,
      from_s: fromMs / 1000,
      ...(duration === undefined ? undefined : { duration_s: duration / 1000 }),
      ...functionSettings(groups, assign),
    },
  };
}

/** "bert-base/3" is of the model bert-base. */
export function modelOfName(name: string): string {
  const at = name.lastIndexOf('/');
  return at === -1 ? name : name.slice(0, at);
}

function generated(
  source: Exclude<(typeof sources)[number], 'trace'>,
  options: LoadOptions,
  groups: readonly FunctionGroup[] | undefined,
): Load {
  if (groups === undefined)
    throw usage('--functions is missing: how many functions of which models, such as bert-base=48');
  const { seed, duration, zipf, skew, assign } = options;
  if (zipf !== undefined && skew !== undefined) throw usage('--zipf and --skew both say how popular functions are');
  if (source !== 'bursts' && (options.burstHeight !== undefined || options.burstWidth !== undefined)) {
    throw usage('--burst-height and --burst-width go with --bursts only');
  }
  const popularity: Popularity | undefined = zipf === undefined ? skew : { kind: 'zipf', exponent: zipf };
  const requests = options.requests ?? (duration === undefined ? requestsDefault : undefined);
  for (const flag of ['rate', 'from'] as const) {
    if (options[flag] !== undefined) throw usage(`${flagOf(flag)} goes with --trace only`);
  }
  const ratePerS = options[source] ?? 0;
  const order = orderGroups(groups, assign, seed);
  const { functionNames, modelOf } = instances(groups, order);
  const arrivals: ArrivalOptions = {
    functionNames,
    ratePerS,
    seed,
    ...given({ requests, durationMs: duration, popularity }),
  };
  const seconds = Math.min((duration ?? Infinity) / 1000, (requests ?? Infinity) / ratePerS);
  return {
    trace: generate(source, arrivals, options, seconds),
    modelOf,
    requestsExpected: Math.round(seconds * ratePerS),
    hasOwnSlo: false,
    settings: {
      load: source === 'azureLike' ? 'azure-like' : source,
      rate_per_s: ratePerS,
      popularity: source === 'azureLike' ? 'azure-like' : popularityText(popularity),
      ...given({ burst_height: options.burstHeight, burst_width: options.burstWidth }),
      ...given({ requests }),
      ...(duration === undefined ? undefined : { duration_s: duration / 1000 }),
      ...functionSettings(groups, assign),
    },
  };
}

function generate(
  source: Exclude<(typeof sources)[number], 'trace'>,
  arrivals: ArrivalOptions,
  { burstHeight, burstWidth }: LoadOptions,
  seconds: number,
): Trace {
  switch (source) {
    case 'poisson':
      return poissonTrace(arrivals);
    case 'bursts':
      return burstTrace({
        ...arrivals,
        ...given({ height: burstHeight, width: burstWidth }),
      });
    case 'diurnal':
      return diurnalTrace(arrivals);
    case 'azureLike': {
      if (arrivals.popularity !== undefined)
        throw usage('--zipf and --skew do not go with --azure-like, which has shares of its own');
      const { functionNames, ratePerS, seed = 0, requests, durationMs } = arrivals;
      // Twice the time that the requests take on average: the first minutes may be quiet.
      const minutes = durationMs === undefined ? Math.ceil(seconds / 30) + 10 : Math.ceil(durationMs / 60_000);
      const trace = azureLikeTrace({ functionNames, ratePerS, minutes, seed });
      return requests === undefined ? trace : limitTrace(trace, requests);
    }
  }
}

function popularityText(popularity: Popularity | undefined): string {
  switch (popularity?.kind) {
    case undefined:
    case 'uniform':
      return 'uniform';
    case 'zipf':
      return `zipf ${popularity.exponent}`;
    case 'skewed':
      return `${popularity.requestShare * 100}% on ${popularity.functionShare * 100}%`;
  }
}

function instances(
  groups: readonly FunctionGroup[],
  order: readonly number[],
): { readonly functionNames: readonly string[]; readonly modelOf: (functionIndex: number) => string } {
  return {
    functionNames: instanceNames(groups, order),
    modelOf: (index) => groups[order[index]!]!.model,
  };
}

function functionSettings(
  groups: readonly FunctionGroup[] | undefined,
  assign: FunctionOrder,
): Record<string, SettingValue> {
  if (groups === undefined) return {};
  return { functions: groups.map(({ model, count }) => `${model}=${count}`).join(','), assign };
}

/** The functions of a load. */
export function groupFlags() {
  return new Command()
    .optionsGroup('Its functions:')
    .option(
      '--functions <list>',
      'functions by model: bert-base=48,gpt2=12; a trace is folded onto them',
      parseFunctionGroups,
    )
    .option('--mix <number>', "so many functions in the DeepPlan paper's mix of models, 4 : 4 : 1", parseCount);
}

export type GroupOptions = OptionsOf<ReturnType<typeof groupFlags>>;

/** `--functions`, or the paper's mix of so many. */
export function groupsOf({ functions, mix }: GroupOptions): readonly FunctionGroup[] | undefined {
  if (functions !== undefined && mix !== undefined)
    throw usage('--functions and --mix both say which functions there are');
  return functions ?? (mix === undefined ? undefined : paperMix(mix));
}
