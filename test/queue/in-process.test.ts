import { describe } from 'vitest';
import { createInProcessQueue } from '../../src/queue/index.ts';
import { overflowQueueConformance } from './conformance.ts';

describe('the overflow queue in this process', () => {
  overflowQueueConformance(async (takers, waitingMax) => {
    const queue = createInProcessQueue({ takers, waitingMax });
    return { queue, [Symbol.asyncDispose]: async () => await queue.stop(0) };
  });
});
