/**
 * Each function's costs on this machine's GPUs, and the plans for its cold starts: measured once for each structure
 * (the same layers in the same sizes), stored as readable JSON, planned from that.
 */
import { createHash } from 'node:crypto';
import { rm } from 'node:fs/promises';
import { join } from 'node:path';
import type { Machine } from '../../hardware/index.ts';
import {
  methodsWithin,
  modeText,
  ownLinkMode,
  planColdStart,
  type ColdStartMode,
  type LayerMethod,
} from '../../plan/index.ts';
import type { LayerProfile } from '../../profile/index.ts';
import { gpuOffers } from '../../schedule/index.ts';
import type { GpuCoverage } from '../../gpu/index.ts';
import type { FunctionPlans } from '../../live/index.ts';
import { readNote, writeNote } from './model-notes.ts';
import { capacityBytesOf } from './machine.ts';

/**
 * If a model is larger than a GPU's memory, some layers stay in host memory under every mode.
 *
 * @param wanted methods of the layers, instead of those of the mode's own planner
 */
export function makePlans(
  profile: LayerProfile,
  machine: Machine,
  mode: ColdStartMode,
  wanted?: readonly LayerMethod[],
): FunctionPlans {
  const capacityBytes = capacityBytesOf(machine);
  const own = wanted ?? planColdStart(profile, machine, mode).layers.map(({ method }) => method);
  const within = methodsWithin(profile.layers, own, capacityBytes);
  const isTooLarge = within.some((method, layer) => method !== own[layer]);
  const given = isTooLarge ? within : wanted;
  const plans = machine.gpus.map((_, primary) => {
    const main = planColdStart(profile, machine, mode, { primary, ...(given === undefined ? {} : { methods: given }) });
    const methods = main.layers.map(({ method }) => method);
    const own = planColdStart(profile, machine, ownLinkMode[mode], { primary, methods });
    return { main, own };
  });
  return {
    mode,
    isTooLarge,
    offers: gpuOffers(profile, machine, mode, given),
    planOf: (gpu, wanted) => {
      const of = plans[gpu];
      if (of === undefined) throw new RangeError(`there is no plan for GPU ${gpu}`);
      const { main, own } = of;
      return main.instead === undefined && wanted === own.mode ? own : main;
    },
  };
}

/** `<folder>/<name>@<version>.json`: for each GPU the times of a start, and for each layer the link that loads it. */
export async function writePlans(folder: string, key: string, plans: FunctionPlans): Promise<void> {
  const gpus = plans.offers.map(({ warmMs, prefixBytes, ways }, gpu) => ({
    gpu,
    predictedMs: { warm: warmMs, cold: ways[0].coldMs[0] },
    gpuBytes: prefixBytes.at(-1),
    inEffect: modeText(plans.planOf(gpu, plans.mode)),
    plan: plans.planOf(gpu, plans.mode),
  }));
  await writeNote(planPath(folder, key), { function: key, mode: plans.mode, gpus });
}

export async function forgetPlans(folder: string, key: string): Promise<void> {
  await rm(planPath(folder, key), { force: true });
}

const planPath = (folder: string, key: string): string => join(folder, `${key}.json`);

/** Equal for models whose layers have the same names, kinds and sizes, and graphs that are alike: they cost the same. */
export function structureOf(coverage: GpuCoverage, shapes: object): string {
  // How large coded layers are differs a little between functions that cost the same.
  const layers = (coverage.layers ?? []).map(({ name, kind, bytes, codedBytes }) =>
    codedBytes === undefined ? [name, kind, bytes] : [name, kind, bytes, 'coded'],
  );
  const rest = coverage.covered ? coverage.launches : coverage.obstacles;
  return createHash('sha256')
    .update(JSON.stringify([layers, rest, shapes]))
    .digest('hex')
    .slice(0, 32);
}

type ProfiledLayer = Pick<LayerProfile['layers'][number], 'name' | 'bytes'>;

/** The engine refuses every run under a plan of other layers; people edit what they can read. */
export const areOf =
  (layers: readonly ProfiledLayer[]) =>
  ({ layers: measured }: LayerProfile): boolean =>
    measured.length === layers.length &&
    layers.every(({ name, bytes }, index) => measured[index]!.name === name && measured[index]!.bytes === bytes);

interface Making<Profile> {
  readonly fits: (profile: Profile) => boolean;
  readonly inTurn: (work: () => Promise<Profile>) => Promise<Profile>;
  readonly make: () => Promise<Profile>;
}

/** Profiles of structures on one machine, on disk. */
export class ProfileStore<Profile extends object> {
  readonly #folder: string;
  readonly #machine: string;
  readonly #parse: (json: unknown) => Profile;

  /** @param machine names the GPUs and the driver: what was measured on others counts for nothing here */
  constructor(folder: string, machine: string, parse: (json: unknown) => Profile) {
    this.#folder = folder;
    this.#machine = machine;
    this.#parse = parse;
  }

  find(structure: string, fits: (profile: Profile) => boolean = () => true): Promise<Profile | undefined> {
    return readNote(this.#path(structure), ({ machine, profile }) => {
      const parsed = machine === this.#machine ? this.#parse(profile) : undefined;
      return parsed !== undefined && fits(parsed) ? parsed : undefined;
    });
  }

  /** What is kept and fits; else what is made. @param inTurn does work one at a time */
  async findOrMake(structure: string, functionName: string, { fits, inTurn, make }: Making<Profile>): Promise<Profile> {
    const stored = (): Promise<Profile | undefined> => this.find(structure, fits);
    const found = await stored();
    if (found !== undefined) return found;
    return await inTurn(async () => {
      // Another function of the same structure may have been measured while this one waited.
      const known = await stored();
      if (known !== undefined) return known;
      const made = await make();
      await this.keep(structure, functionName, made);
      return made;
    });
  }

  keep(structure: string, functionName: string, profile: Profile): Promise<void> {
    return writeNote(this.#path(structure), { machine: this.#machine, firstMeasuredFor: functionName, profile });
  }

  #path(structure: string): string {
    return join(this.#folder, `${structure}.json`);
  }
}
