/**
 * The scheduler's settings in a running host, as the host reports them (`GET /api/scheduler`, `GET
 * /api/scheduler/{name}`): the simulator then uses the same GPUs, policy and offers.
 */
import { schemaProblem, shown } from '../../src/hardware/index.ts';
import {
  policyChoices,
  type GpuOffer,
  type OfferSheet,
  type Policy,
  type SchedulerGpu,
} from '../../src/schedule/index.ts';
import { LiveError } from '../../src/replay/index.ts';

export interface HostScheduler {
  /** 'up' if the GPUs serve, 'none' if there are none. */
  readonly status: string;
  readonly reason: string | undefined;
  /** The host's GPUs are emulated on a CPU: measurements there mean nothing. */
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
  /** Its number with the scheduler; null if only its CPU pool serves it. */
  readonly index: number | null;
  /** The GPUs that have some of its layers. */
  readonly residents: readonly { readonly gpu: number }[];
  /** Since its latest invocation; null before the first. */
  readonly idleMs: number | null;
}

export interface OfferedFunction extends ScheduledFunction {
  readonly sheet: OfferSheet;
}

const schedulerProblem = schemaProblem('replies/scheduler.schema.json', "host's scheduler");
const functionProblem = schemaProblem('replies/scheduled-function.schema.json', "function of the host's scheduler");

/** Throws LiveError. */
export function parseHostScheduler(json: unknown): HostScheduler {
  const problem = schedulerProblem(json);
  if (problem !== undefined) throw new LiveError(problem);
  const { reason, isEmulated, policy, ...rest } = json as Omit<HostScheduler, 'reason' | 'isEmulated' | 'policy'> & {
    readonly reason?: string | null;
    readonly isEmulated?: boolean;
    readonly policy: Omit<Policy, 'waitBoundMs'> & { readonly name: string; readonly waitBoundMs: number | null };
  };
  const { name: policyName, waitBoundMs, ...parts } = policy;
  for (const [field, choices] of Object.entries(policyChoices)) {
    const chosen: unknown = parts[field as keyof typeof policyChoices];
    if (choices.some((choice) => choice === chosen)) continue;
    throw new LiveError(`the host's policy has a ${field} that is not known here: ${shown(chosen)}`);
  }
  return {
    ...rest,
    reason: reason ?? undefined,
    isEmulated: isEmulated ?? false,
    policyName,
    policy: { ...parts, waitBoundMs: waitBoundMs ?? Infinity },
  };
}

/** @param gpuCount of the host. Throws LiveError. */
export function parseOfferedFunction(json: unknown, gpuCount: number): OfferedFunction {
  const problem = functionProblem(json);
  if (problem !== undefined) throw new LiveError(problem);
  const { name, sheet, ...scheduled } = json as OfferedFunction;
  const { gpus, cpu, sloMs, priority, pinned } = sheet;
  if (gpus.length !== gpuCount) {
    throw new LiveError(`the host has ${gpuCount} GPUs, but '${name}' offers for ${gpus.length}`);
  }
  for (const offer of gpus) if (offer !== null) checkOffer(offer, name, gpuCount);
  // Null also if the host never measured it there: the host learns from the first runs, and the simulator has none to
  // learn from.
  const measured = cpu?.latencyMs === undefined ? null : { latencyMs: cpu.latencyMs, cores: cpu.cores };
  return { name, ...scheduled, sheet: { gpus, cpu: measured, sloMs, priority, pinned } };
}

/** Checks what the scheduler and the simulator index, which a schema cannot express. */
function checkOffer({ prefixBytes, ways, smaller }: GpuOffer, name: string, gpuCount: number): void {
  for (const { coldMs, transfers } of ways) {
    const away = transfers.find(({ link }) => link >= gpuCount);
    if (away !== undefined) {
      throw new LiveError(`an offer of '${name}' takes the link of GPU ${away.link}, which is not there`);
    }
    for (const { length } of [coldMs, ...transfers.flatMap(({ bytes, ms, tailMs }) => [bytes, ms, tailMs])]) {
      if (length === prefixBytes.length) continue;
      throw new LiveError(`an offer of '${name}' has tables of ${length} and ${prefixBytes.length} entries`);
    }
  }
  if (smaller !== undefined) checkOffer(smaller, name, gpuCount);
}
