import { execFile } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { LRUCache } from 'lru-cache';
import { HostError } from '../errors.ts';
import type { AnatomyAnswer, AnatomyChoices } from './api-types.ts';

/** JavaScript from dist/ even when the host itself runs from src/, as in tests. */
const processPath = fileURLToPath(
  new URL(
    import.meta.url.endsWith('.ts') ? '../../../dist/host/dashboard/anatomy-process.js' : './anatomy-process.js',
    import.meta.url,
  ),
);
const run = promisify(execFile);
/** People go back and forth between a few; a whole answer of BERT-Large is 300 kB. */
const answers = new LRUCache<string, Promise<unknown>>({ max: 32 });
/** Each is a process of a second: who asks for many waits his turn. */
let turn: Promise<unknown> = Promise.resolve();

export function anatomyChoices(): Promise<AnatomyChoices> {
  return ask([]) as Promise<AnatomyChoices>;
}

/** @throws HostError 'bad-request' for a model, machine or GPU that there is not */
export function anatomyAnswer(model: string, machine: string, gpu: number): Promise<AnatomyAnswer> {
  return ask([model, machine, String(gpu)]) as Promise<AnatomyAnswer>;
}

function ask(words: readonly string[]): Promise<unknown> {
  const key = JSON.stringify(words);
  let answer = answers.get(key);
  if (answer === undefined) {
    answer = turn.then(() => compute(words));
    turn = answer.catch(() => undefined);
    answers.set(key, answer);
    answer.catch(() => answers.delete(key));
  }
  return answer;
}

async function compute(words: readonly string[]): Promise<unknown> {
  const { stdout } = await run(process.execPath, [processPath, ...words], {
    maxBuffer: 64 * 1024 * 1024,
    timeout: 60_000,
  });
  const { answer, refusal } = JSON.parse(stdout) as { readonly answer?: unknown; readonly refusal?: string };
  if (refusal !== undefined) throw new HostError('bad-request', refusal);
  return answer;
}
