/** What a failed step of a call is reported as: whose fault it was decides the status. */
import { OnnxRuntimeError, TensorError } from '../../tensor/index.ts';
import { CpuError } from '../types.ts';
import { messageOf } from './handler-runner.ts';
import { isMemoryShort } from './process-memory.ts';
import type { ResultHeader } from './protocol.ts';

/** What is known of the session in which a run failed. */
export interface FailedRun {
  /** It has answered another call. */
  readonly hasAnswered: boolean;
  readonly hasInputs: boolean;
}

/** @param run for a run of the model */
export function failure(error: unknown, run?: FailedRun): ResultHeader & { readonly kind: 'error' } {
  if (error instanceof CpuError) {
    const { code, message, status } = error;
    return status === undefined ? { kind: 'error', code, message } : { kind: 'error', code, message, status };
  }
  const isShort = error instanceof OnnxRuntimeError && error.kind === 'memory' && isMemoryShort();
  const message = isShort ? `${messageOf(error)}, for lack of memory` : messageOf(error);
  if (error instanceof TensorError) return { kind: 'error', code: 'inference-input', message };
  const isInput = error instanceof OnnxRuntimeError && isCausedByInput(error, run);
  return { kind: 'error', code: isInput ? 'inference-input' : 'inference-failed', message };
}

/**
 * The session is open, and its weights and its graph were checked then. So a run fails by what changes between runs:
 * the shapes and the values of the inputs. What else can fail it has few names (memory, an operator that lacks a case),
 * whereas operators have hundreds of sentences for inputs that they do not take.
 */
function isCausedByInput(
  { kind }: OnnxRuntimeError,
  { hasAnswered, hasInputs }: FailedRun = { hasAnswered: false, hasInputs: true },
): boolean {
  if (!hasInputs) return false;
  switch (kind) {
    case 'memory':
      // Where most of it is free, the input asked for more than there can be.
      return !isMemoryShort();
    case 'not-implemented':
      return hasAnswered;
    case 'other':
      return true;
  }
}
