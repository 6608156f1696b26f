/** The system that a simulated replay runs on: machine, plan, policy, SLO. */
import { readFileSync } from 'node:fs';
import { Option, type Command } from 'commander';
import { PlanError, coldStartModes, type ColdStartMode } from '../../plan/index.ts';
import { parseLayerProfile, ProfileError, type LayerProfile } from '../../profile/index.ts';
import { loadMachine, MachineError, probeMachine, type Machine } from '../../hardware/index.ts';
import {
  ReportBuilder,
  simulate,
  type OfferBook,
  type Report,
  type SettingValue,
  type TraceInvocation,
} from '../../replay/index.ts';
import {
  admissions,
  borrowings,
  evictions,
  offloads,
  orders,
  policies,
  policyNames,
  routings,
  type Policy,
  type PolicyName,
} from '../../schedule/index.ts';
import { CliError } from '../error.ts';
import type { Load } from './load.ts';
import {
  oneOf,
  parseBytes,
  parseCpuOffers,
  parseCount,
  parseDurationMs,
  parseNamedFiles,
  parsePositive,
  parseSlo,
  type ByModel,
} from './values.ts';

export interface SystemOptions {
  readonly machine: string;
  readonly policy: PolicyName;
  readonly routing?: Policy['routing'];
  readonly eviction?: Policy['eviction'];
  readonly offload?: Policy['offload'];
  readonly admission?: Policy['admission'];
  readonly order?: Policy['order'];
  readonly waitBound?: number;
  readonly loadAhead?: boolean;
  readonly borrow?: Policy['borrow'];
  readonly copyThreshold?: number;
  /** Without one, 100 ms. */
  readonly slo?: ByModel;
  readonly cpu?: ReturnType<typeof parseCpuOffers>;
  readonly profile?: ReadonlyMap<string, string>;
  readonly reserve?: number;
  readonly warmup?: number;
}

const sloMsDefault = 100;

/** A policy of the second, the plan that it is made for. */
export const planOfPolicy: Readonly<Record<PolicyName, ColdStartMode>> = { artifact: 'pt+dha', best: 'interleave' };

export const parsePlan = oneOf(coldStartModes);
export const parsePolicy = oneOf(policyNames);

export function addSystemFlags(command: Command): Command {
  return command
    .option('--machine <name|file>', "a machine preset, a file of the same form, or 'here'", 'p3.8xlarge')
    .option('--slo <time>', 'milliseconds to answer in: 100ms, or by model as in bert-base=100ms,gpt2=200ms', parseSlo)
    .option('--warmup <number>', 'requests at the beginning that the report leaves out', parseCount)
    .option('--routing <how>', `instead of the policy's: ${routings.join(', ')}`, oneOf(routings))
    .option('--eviction <how>', evictions.join(', '), oneOf(evictions))
    .option('--offload <when>', `to CPU pools: ${offloads.join(', ')}`, oneOf(offloads))
    .option('--admission <how>', admissions.join(', '), oneOf(admissions))
    .option('--order <how>', `of waiting requests: ${orders.join(', ')}`, oneOf(orders))
    .option('--wait-bound <time>', 'longest that a request is passed over', parseDurationMs)
    .option('--load-ahead', 'load while a request waits')
    .option('--no-load-ahead', 'load when its turn comes')
    .option('--borrow <when>', `other GPUs' links: ${borrowings.join(', ')}`, oneOf(borrowings))
    .option('--copy-threshold <factor>', 'backlog over load time that makes a second copy', parsePositive)
    .addOption(
      new Option('--cpu <offers>', 'what CPU pools offer: bert-base=180ms@8 is 180 ms on 8 cores').argParser(
        parseCpuOffers,
      ),
    )
    .option('--profile <model=file>', "measured times of a model's layers instead of the estimate", parseNamedFiles)
    .option('--reserve <size>', "of each GPU's memory, not for weights; the machine's own otherwise", parseBytes);
}

export function policyOf(options: SystemOptions, name: PolicyName = options.policy): Policy {
  const { routing, eviction, offload, admission, order, waitBound, loadAhead, borrow, copyThreshold } = options;
  return {
    ...policies[name],
    ...(routing === undefined ? undefined : { routing }),
    ...(eviction === undefined ? undefined : { eviction }),
    ...(offload === undefined ? undefined : { offload }),
    ...(admission === undefined ? undefined : { admission }),
    ...(order === undefined ? undefined : { order }),
    ...(waitBound === undefined ? undefined : { waitBoundMs: waitBound }),
    ...(loadAhead === undefined ? undefined : { loadAhead }),
    ...(borrow === undefined ? undefined : { borrow }),
    ...(copyThreshold === undefined ? undefined : { copyThreshold }),
  };
}

export function sloMsOf(slo: ByModel | undefined, model: string): number {
  return slo?.own.get(model) ?? slo?.common ?? sloMsDefault;
}

export function machineOf({ machine }: Pick<SystemOptions, 'machine'>): Machine {
  try {
    return machine === 'here' ? probeMachine() : loadMachine(machine);
  } catch (error) {
    if (error instanceof MachineError) throw new CliError(error.message, { cause: error, exitCode: 2 });
    throw error;
  }
}

/** The profiles that are given in files; what else is asked for is estimated. */
export function readProfiles(files: ReadonlyMap<string, string> = new Map()): Map<string, LayerProfile> {
  return new Map(Array.from(files, ([model, file]) => [model, readProfile(file)]));
}

function readProfile(file: string): LayerProfile {
  try {
    return parseLayerProfile(JSON.parse(readFileSync(file, 'utf8')));
  } catch (error) {
    throw new CliError(`the profile ${file} cannot be used: ${(error as Error).message}`, { cause: error });
  }
}

/** One machine, plan and policy under one load. */
export interface SimulatedSystem {
  readonly machine: Machine;
  readonly offers: OfferBook;
  readonly plan: ColdStartMode;
  readonly policyName: PolicyName;
  readonly options: SystemOptions;
  readonly seed: number;
}

/** Runs a load on a virtual clock. `onProgress` is told now and then how many requests have arrived. */
export async function simulateLoad(
  load: Load,
  { machine, offers, plan, policyName, options, seed }: SimulatedSystem,
  onProgress: (arrived: number) => void,
): Promise<Report> {
  const { warmup = 0, slo, cpu, reserve } = options;
  const policy = policyOf(options, policyName);
  const builder = new ReportBuilder({ fromMs: warmup === 0 ? 0 : Infinity });
  const { functionNames } = load.trace;
  function* counted(): Generator<TraceInvocation> {
    let arrived = 0;
    for (const invocation of load.trace.invocations()) {
      // Before the scheduler sees it: what it does for the first one measured counts.
      if (arrived === warmup && warmup > 0) builder.measureFrom(invocation.arrivalMs);
      arrived++;
      if (arrived % 4096 === 0) onProgress(arrived);
      yield invocation;
    }
  }
  try {
    await simulate(
      { functionNames, invocations: counted },
      {
        machine,
        policy,
        sheetOf: (functionIndex) => {
          const model = load.modelOf(functionIndex);
          const offer = cpu?.get(model);
          const sloMs = sloMsOf(slo, model);
          return offers.sheet(model, offer === undefined ? { sloMs } : { sloMs, cpu: offer });
        },
        ...(reserve === undefined ? undefined : { reserveBytes: reserve }),
      },
      builder,
    );
  } catch (error) {
    if (error instanceof ProfileError || error instanceof PlanError)
      throw new CliError(error.message, { cause: error });
    throw error;
  }
  return builder.finish({
    kind: 'simulated',
    machine: machine.name,
    seed,
    settings: { ...load.settings, ...systemSettings(options, plan, policyName, policy) },
    functionNames,
    modelOf: load.modelOf,
    gpuCount: machine.gpus.length,
  });
}

export function systemSettings(
  { slo, warmup, reserve }: SystemOptions,
  plan: ColdStartMode,
  policyName: PolicyName,
  policy: Policy,
): Record<string, SettingValue> {
  const own = [...(slo?.own ?? [])].map(([model, ms]) => `${model}=${ms}`);
  return {
    plan,
    policy: policyName,
    routing: policy.routing,
    eviction: policy.eviction,
    offload: policy.offload,
    admission: policy.admission,
    order: policy.order,
    // JSON has no infinity.
    wait_bound_ms: Number.isFinite(policy.waitBoundMs) ? policy.waitBoundMs : null,
    load_ahead: policy.loadAhead,
    borrow: policy.borrow,
    copy_threshold: Number.isFinite(policy.copyThreshold) ? policy.copyThreshold : null,
    slo_ms: slo?.common ?? sloMsDefault,
    ...(own.length === 0 ? undefined : { slo_ms_by_model: own }),
    ...(reserve === undefined ? undefined : { reserve_bytes: reserve }),
    warmup_requests: warmup ?? 0,
  };
}
