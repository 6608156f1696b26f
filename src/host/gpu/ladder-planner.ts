/** Ladders are planned in a thread of their own: a large graph takes up to a second, in which the host has to answer. */
import { createHash } from 'node:crypto';
import { Worker } from 'node:worker_threads';
import { LRUCache } from 'lru-cache';
import type { ChrionPlan } from '../../plan/index.ts';
import type { GraphProfile } from '../../profile/index.ts';
import type { LadderAnswer, LadderQuestion } from './ladder-thread.ts';

/** From src/ (tests, tsx) the thread runs the compiled file all the same: Node 20 cannot run TypeScript. */
const threadUrl = new URL(
  import.meta.url.endsWith('.ts') ? '../../../dist/host/gpu/ladder-thread.js' : './ladder-thread.js',
  import.meta.url,
);

/** Ladders that are kept: functions of one structure have the same. */
const laddersKept = 32;

export class LadderPlanner {
  readonly #ladders = new LRUCache<string, Promise<readonly ChrionPlan[]>>({ max: laddersKept });

  /** As planLadder. @throws what planLadder throws, as an Error with its message */
  plan(profile: GraphProfile, options: LadderQuestion['options']): Promise<readonly ChrionPlan[]> {
    const question: LadderQuestion = { profile, options };
    const key = createHash('sha256').update(JSON.stringify(question)).digest('hex');
    let ladder = this.#ladders.get(key);
    if (ladder === undefined) {
      ladder = ask(question);
      this.#ladders.set(key, ladder);
      ladder.catch(() => this.#ladders.delete(key));
    }
    return ladder;
  }
}

function ask(question: LadderQuestion): Promise<readonly ChrionPlan[]> {
  return new Promise((resolve, reject) => {
    const worker = new Worker(threadUrl, { workerData: question, name: 'ladder planner' });
    worker.unref();
    worker.once('message', (answer: LadderAnswer) => {
      if (answer.ok) resolve(answer.ladder);
      else reject(new Error(answer.message));
    });
    worker.once('error', reject);
    worker.once('exit', () => reject(new Error('the planner of ladders ended without an answer')));
  });
}
