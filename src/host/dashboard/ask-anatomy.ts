import { LRUCache } from 'lru-cache';
import { callOnce, compiledModule } from '../../process/index.ts';
import { HostError } from '../errors.ts';
import type { AnatomyApi } from './anatomy-process.ts';
import type { AnatomyAnswer, AnatomyChoices } from './timeline-types.ts';
import { getOrMake } from '../../tools/index.ts';

const timeMsMax = 60_000;
const remote = {
  what: 'the process that computes the anatomy',
  errorOf: (error: Error) => (error.name === 'AnatomyError' ? new HostError('bad-request', error.message) : error),
  process: { module: compiledModule('./anatomy-process.js', import.meta.url) },
};
/** Users switch between a few; an answer for BERT-Large is 300 kB. */
const answers = new LRUCache<string, Promise<unknown>>({ max: 32 });
/** Each is a process that runs for a second, so they run one at a time. */
let turn: Promise<unknown> = Promise.resolve();

export function anatomyChoices(): Promise<AnatomyChoices> {
  return once('choices', () => callOnce<AnatomyApi, 'choices'>(remote, 'choices', undefined, { timeMsMax }));
}

/** @throws HostError 'bad-request' for an unknown model, machine or GPU */
export function anatomyAnswer(model: string, machine: string, gpu: number): Promise<AnatomyAnswer> {
  const question = { model, machine, gpu };
  return once(JSON.stringify(question), () =>
    callOnce<AnatomyApi, 'anatomy'>(remote, 'anatomy', question, { timeMsMax }),
  );
}

function once<Answer>(key: string, compute: () => Promise<Answer>): Promise<Answer> {
  return getOrMake(answers, key, () => {
    const answer = turn.then(compute);
    turn = answer.catch(() => undefined);
    answer.catch(() => answers.delete(key));
    return answer;
  }) as Promise<Answer>;
}
