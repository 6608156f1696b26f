import { LRUCache } from 'lru-cache';
import { askOnce, compiledModule, startProcess } from '../../process/index.ts';
import { HostError } from '../errors.ts';
import type { AnatomyFailure, AnatomyQuestion } from './anatomy-process.ts';
import type { AnatomyAnswer, AnatomyChoices } from './api-types.ts';
import { getOrMake } from '../../tools/index.ts';

const process = { module: compiledModule('./anatomy-process.js', import.meta.url), timeMsMax: 60_000 };
/** Users switch between a few; an answer for BERT-Large is 300 kB. */
const answers = new LRUCache<string, Promise<unknown>>({ max: 32 });
/** Each is a process that runs for a second, so they run one at a time. */
let turn: Promise<unknown> = Promise.resolve();

export function anatomyChoices(): Promise<AnatomyChoices> {
  return ask({ of: 'choices' }) as Promise<AnatomyChoices>;
}

/** @throws HostError 'bad-request' for an unknown model, machine or GPU */
export function anatomyAnswer(model: string, machine: string, gpu: number): Promise<AnatomyAnswer> {
  return ask({ of: 'anatomy', model, machine, gpu }) as Promise<AnatomyAnswer>;
}

function ask(question: AnatomyQuestion): Promise<unknown> {
  const key = JSON.stringify(question);
  return getOrMake(answers, key, () => {
    const answer = turn.then(() => compute(question));
    turn = answer.catch(() => undefined);
    answer.catch(() => answers.delete(key));
    return answer;
  });
}

function compute(question: AnatomyQuestion): Promise<unknown> {
  return askOnce<unknown, AnatomyQuestion, AnatomyFailure>(
    (events) => startProcess(process, events),
    question,
    ({ failure, ended }) =>
      failure?.isRefusal === true
        ? new HostError('bad-request', failure.message)
        : new Error(failure?.message ?? `the process that computes the anatomy is gone: ${ended?.reason}`),
  );
}
