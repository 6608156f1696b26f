import type { ModelProto } from '../types.ts';
import { SeededGraph } from './seeded-graph.ts';
import {
  ArchitectureError,
  resolveSettings,
  type SettingsOf,
  type SettingSpecs,
  type SettingValue,
} from './settings.ts';

export interface BuiltModel {
  /** Weights are made when they are written. */
  readonly model: ModelProto;
  /** Every setting, defaults included. */
  readonly settings: Readonly<Record<string, SettingValue>>;
  /** Learnable elements, as PyTorch counts parameters: shared weights once, running statistics not at all. */
  readonly parameterCount: number;
  /** Bytes of all weights, running statistics included. */
  readonly weightBytes: number;
}

/** A network that can be built at any size, with seeded weights. */
export interface Architecture {
  readonly name: string;
  readonly description: string;
  readonly settings: SettingSpecs;
  /** @throws ArchitectureError for an unknown setting, or a value that the network cannot have */
  build(given: Readonly<Record<string, SettingValue>>, seed: number): BuiltModel;
}

export function defineArchitecture<const Specs extends SettingSpecs>(definition: {
  readonly name: string;
  readonly description: string;
  readonly settings: Specs;
  /** Adds inputs, nodes and outputs. */
  readonly graph: (graph: SeededGraph, settings: SettingsOf<Specs>) => void;
}): Architecture {
  const { name, description, settings: specs } = definition;
  return {
    name,
    description,
    settings: specs,
    build(given, seed) {
      if (!Number.isSafeInteger(seed) || seed < 0) {
        throw new ArchitectureError(`the seed is ${seed}, but takes an integer of at least 0`);
      }
      const settings = resolveSettings(name, specs, given);
      const graph = new SeededGraph(name, seed);
      definition.graph(graph, settings as SettingsOf<Specs>);
      const model = graph.build();
      model.metadataProps = [
        { key: 'turntable.architecture', value: name },
        { key: 'turntable.seed', value: String(seed) },
        ...Object.entries(settings).map(([key, value]) => ({ key: `turntable.${key}`, value: String(value) })),
      ];
      const elements = model.graph.initializer.map(({ dims }) =>
        Number(dims.reduce((product, dim) => product * dim, 1n)),
      );
      return {
        model,
        settings,
        parameterCount: graph.learnableCount,
        weightBytes: elements.reduce((sum, count) => sum + count * Float32Array.BYTES_PER_ELEMENT, 0),
      };
    },
  };
}

/** Refuses a combination of settings, in a sentence that says why. */
export function refuse(reason: string): never {
  throw new ArchitectureError(reason);
}
