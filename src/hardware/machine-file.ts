/** Machines in files: the presets under `wrangler-free-config/machines/`, and any other file of the same form. */
import { readdirSync, readFileSync } from 'node:fs';
import { Ajv, type ErrorObject, type ValidateFunction } from 'ajv';
import type { Machine } from './machine.ts';

/** A machine that cannot be used; the message is one sentence that names the field. */
export class MachineError extends Error {
  override readonly name = 'MachineError';
}

// The same relative paths from src/ and from dist/.
const schemaUrl = new URL('../../wrangler-free-config/machine.schema.json', import.meta.url);
const presetsUrl = new URL('../../wrangler-free-config/machines/', import.meta.url);

let validate: ValidateFunction<Machine> | undefined;

/** Names of the machines that ship. */
export function machinePresets(): string[] {
  return readdirSync(presetsUrl)
    .filter((file) => file.endsWith('.json'))
    .map((file) => file.slice(0, -'.json'.length))
    .sort();
}

/**
 * A preset by name, or a machine from a file: anything with a slash or that ends in `.json` is a path. Throws
 * {@link MachineError}.
 */
export function loadMachine(nameOrPath: string): Machine {
  const isPath = /[/\\]|\.json$/.test(nameOrPath);
  if (!isPath && !machinePresets().includes(nameOrPath)) {
    throw new MachineError(
      `there is no machine '${nameOrPath}'; there are ${machinePresets().join(', ')}, or give the path of a file`,
    );
  }
  let text: string;
  try {
    text = readFileSync(isPath ? nameOrPath : new URL(`${nameOrPath}.json`, presetsUrl), 'utf8');
  } catch (error) {
    throw new MachineError(`machine file ${nameOrPath} cannot be read: ${(error as NodeJS.ErrnoException).code}`);
  }
  let json: unknown;
  try {
    json = JSON.parse(text);
  } catch (error) {
    throw new MachineError(`machine file ${nameOrPath} is not JSON: ${(error as Error).message}`);
  }
  return parseMachine(json);
}

/** Checks what was read from a file. Throws {@link MachineError} with a sentence that names the field. */
export function parseMachine(json: unknown): Machine {
  validate ??= new Ajv({ verbose: true }).compile<Machine>(JSON.parse(readFileSync(schemaUrl, 'utf8')) as object);
  if (!validate(json)) throw new MachineError(sentenceFor(validate.errors?.[0]));
  checkReferences(json);
  return json;
}

function fail(field: string, found: unknown, allowed: string): never {
  throw new MachineError(`field '${field}' of the machine is ${JSON.stringify(found)}, but ${allowed}`);
}

/** What a schema cannot say: positions must exist. */
function checkReferences({ gpus, switches, nvlinks, costs, memoryBytes, hostMemory }: Machine): void {
  if (hostMemory !== undefined && hostMemory.pinnedBytes > memoryBytes) {
    fail('hostMemory.pinnedBytes', hostMemory.pinnedBytes, `the machine has ${memoryBytes} bytes of memory in all`);
  }
  for (const [index, gpu] of gpus.entries()) {
    if (gpu.switch >= switches.length) {
      fail(`gpus[${index}].switch`, gpu.switch, `there are ${switches.length} switches, counted from 0`);
    }
    if (gpu.reserveBytes >= gpu.memoryBytes) {
      fail(`gpus[${index}].reserveBytes`, gpu.reserveBytes, `the GPU has ${gpu.memoryBytes} bytes in all`);
    }
  }
  const seen = new Set<string>();
  for (const [index, { gpus: pair }] of nvlinks.entries()) {
    const field = `nvlinks[${index}].gpus`;
    if (pair.some((gpu) => gpu >= gpus.length)) fail(field, pair, `there are ${gpus.length} GPUs, counted from 0`);
    if (pair[0] === pair[1]) fail(field, pair, 'a link joins two GPUs');
    const key = [...pair].sort((a, b) => a - b).join('-');
    if (seen.has(key)) fail(field, pair, 'that pair is listed already');
    seen.add(key);
  }
  if (gpus.length > 0 && costs === undefined) {
    throw new MachineError("the machine has GPUs but no field 'costs'");
  }
}

function sentenceFor(error: ErrorObject | undefined): string {
  if (error === undefined) return 'the machine does not fit its schema';
  const path = error.instancePath
    .split('/')
    .slice(1)
    .reduce(
      (joined, part) => (/^\d+$/.test(part) ? `${joined}[${part}]` : [joined, part].filter(Boolean).join('.')),
      '',
    );
  const inside = (field: unknown): string => [path, String(field)].filter(Boolean).join('.');
  const params = error.params as Readonly<Record<string, unknown>>;
  if (error.keyword === 'required') return `the machine has no field '${inside(params['missingProperty'])}'`;
  if (error.keyword === 'additionalProperties') {
    const { properties = {} } = error.parentSchema as { properties?: object };
    const known = Object.keys(properties).join(', ');
    return `the machine has an unknown field '${inside(params['additionalProperty'])}' (known there: ${known})`;
  }
  const subject = path === '' ? 'the machine' : `field '${path}' of the machine`;
  const found = JSON.stringify(error.data) ?? 'undefined';
  return `${subject} is ${found.length > 60 ? `${found.slice(0, 57)}...` : found}, but ${error.message ?? 'is wrong'}`;
}
