/** Machines in files: the presets in `wrangler-free-config/machines/`, and files of the same form. */
import { readdirSync, readFileSync } from 'node:fs';
import type { Machine } from './machine.ts';
import { schemaProblem } from './schema-problem.ts';

/** A machine that cannot be used; the message is one sentence that names the field. */
export class MachineError extends Error {
  override readonly name = 'MachineError';
}

// The same relative path from src/ and from dist/.
const presetsUrl = new URL('../../wrangler-free-config/machines/', import.meta.url);

const problemOf = schemaProblem('machine.schema.json', 'machine');

/** Names of the presets. */
export function machinePresets(): string[] {
  return readdirSync(presetsUrl)
    .filter((file) => file.endsWith('.json'))
    .map((file) => file.slice(0, -'.json'.length))
    .sort();
}

/**
 * A preset by name, or a machine from a file: a name with a slash or that ends in `.json` is a path.
 * @throws MachineError
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

/** Checks the contents of a file. @throws MachineError with a sentence that names the field */
export function parseMachine(json: unknown): Machine {
  const problem = problemOf(json);
  if (problem !== undefined) throw new MachineError(problem);
  checkReferences(json as Machine);
  return json as Machine;
}

function fail(field: string, found: unknown, allowed: string): never {
  throw new MachineError(`field '${field}' of the machine is ${JSON.stringify(found)}, but ${allowed}`);
}

/** Checks what a schema cannot express, such as positions that must exist. */
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
