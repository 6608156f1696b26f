/**
 * What the scheduler of a running host goes by, as the host tells it (`GET /api/scheduler`, `GET /api/scheduler/{name}`): with it the
 * simulator gets the very same GPUs, policy and offers.
 */
import {
  admissions,
  borrowings,
  copyChoices,
  evictions,
  offloads,
  orders,
  routings,
  type CpuOffer,
  type GpuOffer,
  type OfferSheet,
  type Policy,
  type SchedulerGpu,
} from '../schedule/index.ts';
import { LiveError } from './live-inputs.ts';

export interface HostScheduler {
  /** 'up' where the GPUs serve, 'none' where there are none. */
  readonly status: string;
  readonly reason: string | undefined;
  /** The host's GPUs are emulated on a CPU: what is measured there means nothing. */
  readonly isEmulated: boolean;
  readonly mode: string;
  readonly policyName: string;
  readonly policy: Policy;
  readonly cpuCores: number;
  readonly gpus: readonly SchedulerGpu[];
  readonly functions: readonly ScheduledFunction[];
}

/** A function as the scheduler knows it. */
export interface ScheduledFunction {
  readonly name: string;
  /** Its number with the scheduler; undefined where its CPU pool alone serves it. */
  readonly index: number | undefined;
  /** GPUs that have some of its layers. */
  readonly residentOn: readonly number[];
  /** Since its latest invocation; undefined before the first. */
  readonly idleMs: number | undefined;
}

export interface OfferedFunction extends ScheduledFunction {
  readonly sheet: OfferSheet;
}

type Fields = Readonly<Record<string, unknown>>;

/** Throws LiveError. */
export function parseHostScheduler(json: unknown): HostScheduler {
  const { status, reason, isEmulated, mode, policy, cpuCores, gpus, functions } = fieldsOf(json, 'the scheduler');
  const { name: policyName, ...settings } = fieldsOf(policy, 'the policy');
  return {
    status: textOf(status, 'status'),
    reason: typeof reason === 'string' ? reason : undefined,
    isEmulated: isEmulated === true,
    mode: textOf(mode, 'mode'),
    policyName: textOf(policyName, 'the name of the policy'),
    policy: policyOf(settings),
    cpuCores: numberOf(cpuCores, 'cpuCores'),
    gpus: listOf(gpus, 'gpus').map((gpu, index): SchedulerGpu => {
      const { capacityBytes, switch: pciSwitch, linkGBps, uplinkGBps } = fieldsOf(gpu, `GPU ${index}`);
      return {
        capacityBytes: numberOf(capacityBytes, `capacityBytes of GPU ${index}`),
        switch: numberOf(pciSwitch, `switch of GPU ${index}`),
        linkGBps: numberOf(linkGBps, `linkGBps of GPU ${index}`),
        uplinkGBps: numberOf(uplinkGBps, `uplinkGBps of GPU ${index}`),
      };
    }),
    functions: listOf(functions, 'functions').map(scheduledFunction),
  };
}

/** @param gpuCount of the host. Throws LiveError. */
export function parseOfferedFunction(json: unknown, gpuCount: number): OfferedFunction {
  const scheduled = scheduledFunction(json);
  const { name } = scheduled;
  const sheet = fieldsOf(fieldsOf(json, name)['sheet'], `the sheet of '${name}'`);
  const gpus = listOf(sheet['gpus'], `the offers of '${name}'`);
  if (gpus.length !== gpuCount) {
    throw new LiveError(`the host has ${gpuCount} GPUs, but '${name}' offers for ${gpus.length}`);
  }
  return {
    ...scheduled,
    sheet: {
      gpus: gpus.map((offer) => (offer === null ? null : gpuOffer(offer, name, gpuCount))),
      cpu: cpuOffer(sheet['cpu'], name),
      sloMs: numberOf(sheet['sloMs'], `the SLO of '${name}'`),
      priority: signedOf(sheet['priority'], `the priority of '${name}'`),
      pinned: sheet['pinned'] === true,
    },
  };
}

function scheduledFunction(json: unknown): ScheduledFunction {
  const fields = fieldsOf(json, 'a function');
  const name = textOf(fields['name'], 'the name of a function');
  const { index, residents, idleMs } = fields;
  return {
    name,
    index: index === null ? undefined : numberOf(index, `the number of '${name}'`),
    residentOn: listOf(residents, `the residents of '${name}'`).map((each) =>
      numberOf(fieldsOf(each, `a resident of '${name}'`)['gpu'], `a GPU of '${name}'`),
    ),
    idleMs: idleMs === null ? undefined : numberOf(idleMs, `idleMs of '${name}'`),
  };
}

function policyOf(fields: Fields): Policy {
  const one = <Choice extends string>(field: string, choices: readonly Choice[]): Choice => {
    const found = choices.find((choice) => choice === fields[field]);
    if (found !== undefined) return found;
    throw new LiveError(`the host's policy has a ${field} that is not known here: ${String(fields[field])}`);
  };
  const bound = (field: string): number => {
    const value = fields[field];
    return value === null ? Infinity : numberOf(value, field);
  };
  return {
    routing: one('routing', routings),
    eviction: one('eviction', evictions),
    offload: one('offload', offloads),
    admission: one('admission', admissions),
    order: one('order', orders),
    borrow: one('borrow', borrowings),
    loadAhead: fields['loadAhead'] === true,
    waitBoundMs: bound('waitBoundMs'),
    copies: one('copies', copyChoices),
  };
}

/** Everything of the offer is kept; what the scheduler and the simulator index is checked. */
function gpuOffer(json: unknown, name: string, gpuCount: number): GpuOffer {
  const what = `an offer of '${name}'`;
  const fields = fieldsOf(json, what);
  const { length } = numbersOf(fields['prefixBytes'], undefined, what);
  numberOf(fields['warmMs'], what);
  numberOf(fields['hidingPrefix'], what);
  const ways = listOf(fields['ways'], what);
  for (const way of ways) {
    const { mode, coldMs, transfers } = fieldsOf(way, what);
    textOf(mode, what);
    numbersOf(coldMs, length, what);
    const links = listOf(transfers, what);
    for (const transfer of links) {
      const { link, bytes, ms, tailMs } = fieldsOf(transfer, what);
      if (!(Number.isInteger(link) && Number(link) >= 0 && Number(link) < gpuCount)) {
        throw new LiveError(`${what} takes the link of GPU ${String(link)}, which is not there`);
      }
      for (const table of [bytes, ms, tailMs]) numbersOf(table, length, what);
    }
    if (links.length === 0) throw new LiveError(`${what} has a way without a link`);
  }
  if (ways.length === 0 || length === 0) throw new LiveError(`${what} has no way to load it`);
  if (fields['batches'] !== undefined) {
    for (const batch of listOf(fields['batches'], what)) {
      const { rows, ms } = fieldsOf(batch, what);
      numberOf(rows, what);
      numberOf(ms, what);
    }
  }
  // The next rung of a ladder of plans is an offer itself.
  if (fields['smaller'] !== undefined) gpuOffer(fields['smaller'], name, gpuCount);
  return json as GpuOffer;
}

/** Null as well where the host never measured it there: it learns from the first runs, and the simulator has none to learn from. */
function cpuOffer(json: unknown, name: string): CpuOffer | null {
  if (json === null) return null;
  const { latencyMs, cores } = fieldsOf(json, `the CPU pool of '${name}'`);
  if (latencyMs === undefined) return null;
  return {
    latencyMs: numberOf(latencyMs, `latencyMs of '${name}'`),
    cores: numberOf(cores, `the cores of '${name}'`),
  };
}

function fieldsOf(json: unknown, what: string): Fields {
  if (typeof json === 'object' && json !== null && !Array.isArray(json)) return json as Fields;
  throw new LiveError(`the host does not say what ${what} is`);
}

function listOf(json: unknown, what: string): readonly unknown[] {
  if (Array.isArray(json)) return json as readonly unknown[];
  throw new LiveError(`the host gives no list for ${what}`);
}

function textOf(json: unknown, what: string): string {
  if (typeof json === 'string') return json;
  throw new LiveError(`the host gives no text for ${what}`);
}

/** Priorities of the scheduler count up from below zero: the protocol's highest is 1. */
function signedOf(json: unknown, what: string): number {
  if (typeof json === 'number') return json;
  throw new LiveError(`the host gives no number for ${what}`);
}

function numberOf(json: unknown, what: string): number {
  if (typeof json === 'number' && json >= 0) return json;
  throw new LiveError(`the host gives no number for ${what}`);
}

function numbersOf(json: unknown, length: number | undefined, what: string): readonly number[] {
  const numbers = listOf(json, what).map((each) => numberOf(each, what));
  if (length !== undefined && numbers.length !== length) {
    throw new LiveError(`${what} has tables of ${numbers.length} and ${length} entries`);
  }
  return numbers;
}
