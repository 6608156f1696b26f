/**
 * Shadow traffic: a share of a function's calls also runs on another version, after the client has its answer, and both
 * answers are compared. No client waits for the copies, and they count neither as goodput nor as calls.
 */
import type { PoolInput, PoolOutput } from '../cpu/index.ts';
import { elementDifference, type Tensor } from '../tensor/index.ts';
import { toHostError } from './errors.ts';
import type { Share } from './traffic.ts';
import type { FunctionVersion, ModelStore } from './types.ts';

export interface ShadowCounts {
  readonly version: string;
  same: number;
  different: number;
  failed: number;
  /** Not run, because the limit of running copies was reached. */
  skipped: number;
  /** The latest difference or failure, in words. */
  latest: string | undefined;
}

/** Copies of one function that run at once. They must not take the room of clients' calls. */
const atOnceMax = 2;
/** Relative to the largest magnitude of an output: the allowed difference between two builds of the same model. */
const tolerance = 1e-3;

export interface ShadowsOptions {
  readonly store: Pick<ModelStore, 'find'>;
  /** Runs the version without accounting for it. */
  readonly run: (version: FunctionVersion, input: PoolInput) => Promise<PoolOutput>;
}

export class Shadows {
  readonly #options: ShadowsOptions;
  readonly #counts = new Map<string, ShadowCounts>();
  readonly #running = new Map<string, number>();
  readonly #due = new Map<string, number>();

  constructor(options: ShadowsOptions) {
    this.#options = options;
  }

  /** Results of the copies since the host started; undefined if there were none. */
  counts(functionName: string): Readonly<ShadowCounts> | undefined {
    return this.#counts.get(functionName);
  }

  all(): Iterable<[functionName: string, counts: Readonly<ShadowCounts>]> {
    return this.#counts;
  }

  /**
   * A call of a function with this shadow was answered. Resolves when its copy, if it has one, has been compared; never
   * rejects.
   */
  async answered(answering: FunctionVersion, shadow: Share, input: PoolInput, output: PoolOutput): Promise<void> {
    if (shadow.version === answering.version) return;
    const version = this.#options.store.find(answering.name, shadow.version);
    if (version?.state.status !== 'ready' || !this.#isDue(answering.name, shadow.percent)) return;
    const counts = this.#countsOf(version);
    const running = this.#running.get(version.name) ?? 0;
    if (running >= atOnceMax) {
      counts.skipped++;
      return;
    }
    this.#running.set(version.name, running + 1);
    try {
      const difference = outputDifference(await this.#options.run(version, input), output);
      counts[difference === undefined ? 'same' : 'different']++;
      counts.latest = difference ?? counts.latest;
    } catch (error) {
      counts.failed++;
      counts.latest = toHostError(error).message;
    } finally {
      const left = (this.#running.get(version.name) ?? 1) - 1;
      if (left > 0) this.#running.set(version.name, left);
      else this.#running.delete(version.name);
    }
  }

  /** True for `percent` of the calls, evenly: with 25, for every fourth. */
  #isDue(functionName: string, percent: number): boolean {
    const sum = (this.#due.get(functionName) ?? 0) + percent;
    this.#due.set(functionName, sum >= 100 ? sum - 100 : sum);
    return sum >= 100;
  }

  #countsOf({ name, version }: FunctionVersion): ShadowCounts {
    let counts = this.#counts.get(name);
    if (counts?.version !== version) {
      counts = { version, same: 0, different: 0, failed: 0, skipped: 0, latest: undefined };
      this.#counts.set(name, counts);
    }
    return counts;
  }
}

/** How the shadow's answer differs, in words; undefined if it does not. */
export function outputDifference(shadow: PoolOutput, answer: PoolOutput): string | undefined {
  if (shadow.kind === 'tensors' && answer.kind === 'tensors') return tensorsDifference(shadow.tensors, answer.tensors);
  if (shadow.kind !== 'response' || answer.kind !== 'response') return 'one answers with tensors, the other does not';
  const [given, wanted] = [shadow.response, answer.response];
  if (given.status !== wanted.status) return `the status is ${given.status}, not ${wanted.status}`;
  if (Buffer.from(given.body).equals(wanted.body)) return undefined;
  const [left, right] = [jsonOf(given.body), jsonOf(wanted.body)];
  if (left === undefined || right === undefined) return 'the bodies differ';
  return jsonDifference(left.value, right.value, 'the reply');
}

function tensorsDifference(shadow: readonly Tensor[], answer: readonly Tensor[]): string | undefined {
  const found = new Map(shadow.map((tensor) => [tensor.name, tensor]));
  for (const wanted of answer) {
    const given = found.get(wanted.name);
    if (given === undefined) return `there is no output '${wanted.name}'`;
    if (typeText(given) !== typeText(wanted)) {
      return `output '${wanted.name}' is ${typeText(given)}, not ${typeText(wanted)}`;
    }
    const difference = elementDifference(given, wanted, tolerance);
    if (difference === undefined) continue;
    const { index, actual, expected } = difference;
    if (index === undefined) return `the texts of output '${wanted.name}' differ`;
    return `element ${index} of output '${wanted.name}' is ${actual}, not ${expected}`;
  }
  return undefined;
}

const typeText = ({ datatype, shape }: Tensor): string => `${datatype} [${shape.join(', ')}]`;

function jsonOf(body: Uint8Array): { readonly value: unknown } | undefined {
  try {
    return { value: JSON.parse(Buffer.from(body).toString('utf8')) as unknown };
  } catch {
    return undefined;
  }
}

/** Numbers may differ by the tolerance, relative to the larger one or 1. */
function jsonDifference(shadow: unknown, answer: unknown, where: string): string | undefined {
  if (shadow === answer) return undefined;
  if (typeof shadow === 'number' && typeof answer === 'number') {
    const scale = Math.max(1, Math.abs(shadow), Math.abs(answer));
    return Math.abs(shadow - answer) <= tolerance * scale ? undefined : `${where} is ${shadow}, not ${answer}`;
  }
  const areObjects = typeof shadow === 'object' && typeof answer === 'object' && shadow !== null && answer !== null;
  if (!areObjects || Array.isArray(shadow) !== Array.isArray(answer)) {
    return `${where} is ${brief(shadow)}, not ${brief(answer)}`;
  }
  const [left, right] = [shadow as Record<string, unknown>, answer as Record<string, unknown>];
  for (const key of new Set([...Object.keys(left), ...Object.keys(right)])) {
    const difference = jsonDifference(left[key], right[key], `${where}.${key}`);
    if (difference !== undefined) return difference;
  }
  return undefined;
}

const brief = (value: unknown): string => (JSON.stringify(value) ?? 'missing').slice(0, 60);
