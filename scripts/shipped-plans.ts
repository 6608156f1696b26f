/** Makes the shipped plans from estimated layer times. */
import { loadMachine } from '../src/hardware/index.ts';
import type { LayerRow, ShippedPlan } from '../src/host/gpu/shipped-plans.ts';
import { coldStartModes, planColdStart, simulate, type LayerMethod } from '../src/plan/index.ts';
import {
  estimateLayers,
  namedModel,
  type LayerProfile,
  type NamedModel,
  type ProfileLayer,
} from '../src/profile/index.ts';

export const shippedModels = ['bert-base', 'bert-large', 'roberta-base', 'gpt2', 'resnet50', 'resnet101'] as const;
export const shippedMachines = ['p3.8xlarge', 'a5000x2', 'h200'] as const;

/** Modes whose planners choose a method for each layer; the others load all layers. */
const choosingModes = ['dha', 'pt+dha', 'interleave'] as const;

/** Milliseconds to a tenth of a microsecond: an estimate is not more precise. */
const rounded = (ms: number): number => Math.round(ms * 10_000) / 10_000;

/** The plan on a machine preset for a model that {@link namedModel} knows, or for a given one. */
export function shippedPlanOf(given: string | NamedModel, machineName: string): ShippedPlan {
  const { name, model, dimensions } = typeof given === 'string' ? namedModel(given) : given;
  const machine = loadMachine(machineName);
  const profile = onlyWeighted(estimateLayers(model, machine, { dimensions }).profile);
  const plans = new Map(coldStartModes.map((mode) => [mode, planColdStart(profile, machine, mode, { primary: 0 })]));
  const choices = choosingModes.map((mode) => plans.get(mode)!.layers.map(({ method }) => method));
  return {
    model: name,
    machine: machineName,
    gpus: machine.gpus.map((gpu) => gpu.model),
    provenance: `layer times estimated for ${machineName}, starts simulated; nothing of this was measured`,
    dimensions,
    starts: Object.fromEntries(
      Array.from(plans, ([mode, plan]) => [
        mode,
        { coldMs: rounded(simulate(profile, machine, plan).latencyMs), gpuBytes: plan.bytesGpu },
      ]),
    ),
    columns: ['name', 'bytes', 'loadMs', 'executeMs', 'dhaMs', ...choosingModes],
    layers: profile.layers.map((layer, index) =>
      rowOf(
        layer,
        choices.map((methods) => methods[index]!),
      ),
    ),
  };
}

const rowOf = ({ name, bytes, load, exec, dha }: ProfileLayer, methods: readonly LayerMethod[]): LayerRow => [
  name,
  bytes,
  rounded(load),
  rounded(exec),
  rounded(dha),
  ...methods,
];

/**
 * A layer without weights is never loaded: the engine runs its operators in the layer before it, so its times belong
 * there.
 */
function onlyWeighted({ unit, layers }: LayerProfile): LayerProfile {
  const merged: ProfileLayer[] = [];
  let waiting: Pick<ProfileLayer, 'exec' | 'dha'> = { exec: 0, dha: 0 };
  for (const { name, kind, bytes, load, exec, dha } of layers) {
    const before = merged.at(-1);
    if (bytes > 0) {
      merged.push({ name, kind, bytes, load, exec: exec + waiting.exec, dha: dha + waiting.dha });
      waiting = { exec: 0, dha: 0 };
    } else if (before === undefined) {
      waiting = { exec: waiting.exec + exec, dha: waiting.dha + exec };
    } else {
      merged[merged.length - 1] = { ...before, exec: before.exec + exec, dha: before.dha + exec };
    }
  }
  return { unit, layers: merged };
}

/** As readable JSON: a line for each layer. */
export function formatShippedPlan({ layers, ...rest }: ShippedPlan): string {
  const head = Object.entries(rest).map(([name, value]) => ` ${JSON.stringify(name)}: ${JSON.stringify(value)},\n`);
  const rows = layers.map((row) => `  ${JSON.stringify(row)}`);
  return `{\n${head.join('')} "layers": [\n${rows.join(',\n')}\n ]\n}\n`;
}
