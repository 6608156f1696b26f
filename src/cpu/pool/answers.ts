/** What the outcome of a run means for the invocations that were in it. */
import type { RunOutcome } from '../instance/instance-run.ts';
import { toOutput, type Ticket } from './ticket.ts';
import type { ResultHeader } from '../instance/protocol.ts';
import { CpuError } from '../types.ts';

/** Answers every ticket of a run that came to its end. */
export function answer(
  key: string,
  instancePid: number,
  tickets: readonly Ticket[],
  outcome: RunOutcome & { kind: 'ran' },
): void {
  const { results } = outcome.result;
  for (const [index, ticket] of tickets.entries()) {
    const result = results[index];
    if (result === undefined) {
      ticket.reject(new CpuError('inference-failed', `an instance of ${key} did not answer a call of its run`));
      continue;
    }
    const { header } = result;
    if (header.kind === 'error') {
      ticket.reject(ticket.modelRun?.failure ?? toError(key, header));
      continue;
    }
    const loadedMs = header.times.loadMs ?? 0;
    ticket.resolve({
      output: toOutput(header, result.tensors),
      timings: {
        queueMs: Math.max(0, outcome.startedMs - ticket.arrivalMs - ticket.loadMs) + header.times.waitMs,
        loadMs: ticket.loadMs + loadedMs,
        preprocessMs: header.times.preprocessMs,
        inferMs: header.times.inferMs,
        postprocessMs: header.times.postprocessMs,
      },
      coldStart: ticket.cold || loadedMs > 0,
      batchSize: header.batch,
      instancePid,
      modelElsewhere: ticket.modelRun?.ran === true ? true : undefined,
    });
  }
}

function toError(key: string, { code, message, status }: ResultHeader & { kind: 'error' }): CpuError {
  if (code !== 'model-load-failed') return new CpuError(code, message, status);
  return new CpuError(code, `the model of ${key} could not be loaded: ${message}`);
}

/**
 * Sees to what a dead instance held: the guilty call fails, and so does one that has seen two instances die with
 * nothing else in their hands. Gives the others, for their second chance, in the order in which they are put back.
 */
export function survivors(
  key: string,
  tickets: readonly Ticket[],
  outcome: RunOutcome & { kind: 'died' | 'timeout' },
): Ticket[] {
  return [...tickets].reverse().filter((ticket) => {
    // A run of the model that took too long is one call's fault, but of a message with several nobody knows whose.
    const guilty = outcome.kind === 'timeout' && (tickets.length === 1 || tickets[outcome.call] === ticket);
    if (guilty) {
      ticket.reject(outcome.error);
      return false;
    }
    if (outcome.kind === 'timeout' ? outcome.call === -1 : outcome.suspect) {
      ticket.alone = true;
      if (tickets.length === 1) ticket.deaths++;
    }
    if (ticket.deaths <= 1) return true;
    const reason = outcome.kind === 'died' ? outcome.reason : outcome.error.message;
    ticket.reject(
      new CpuError('instance-died', `two instances of ${key} died while they ran this invocation: ${reason}`),
    );
    return false;
  });
}
