/**
 * The options of every CPU session: of instances, of what profiles measure, of the preparer of weights, the validator,
 * the checks of rows and `try`. What one of them finds out then holds for the others.
 */
import type { SessionOptions } from '../../tensor/index.ts';
import type { SessionSettings } from './protocol.ts';

/** What decides how long a run takes, beside its threads: part of each profile, which holds for these alone. */
export interface MeasuredSession {
  /** Whether it keeps the memory of intermediate results for the next run: ONNX Runtime's arena. */
  readonly arena: boolean;
  /** Whether idle threads spin. */
  readonly spinning: boolean;
}

export const measuredSession = ({
  isAlone,
  spinning,
}: Pick<SessionSettings, 'isAlone' | 'spinning'>): MeasuredSession => ({
  // No other session can use the memory of an arena, and onnxruntime-node cannot shrink one. In a shared process results
  // come from the C library's heap, which serves all sessions. Large ones go back to the system after each run, and a run
  // with 100 MB of them is six times as long for the page faults; such a function gets a process of its own.
  arena: isAlone,
  spinning,
});

export function sessionOptions(settings: SessionSettings): SessionOptions {
  const { threads, cores = [], logSeverity = 3 } = settings;
  const { arena, spinning } = measuredSession(settings);
  // ONNX Runtime counts processors from 1, and does not pin the calling thread: the host does that.
  const others = cores.slice(1, threads).map((core) => core + 1);
  return {
    executionProviders: ['cpu'],
    intraOpNumThreads: threads,
    interOpNumThreads: 1,
    logSeverityLevel: logSeverity,
    enableCpuMemArena: arena,
    extra: {
      session: {
        // On shared cores a spinning thread pool takes them from threads with work: two sessions of two threads on two
        // cores run half as fast with it.
        intra_op: { allow_spinning: spinning ? '1' : '0' },
        ...(others.length === 0 ? undefined : { intra_op_thread_affinities: others.join(';') }),
      },
    },
  };
}
