/** Keeps a host running after an uncaught error. */
import type { Log } from '../tools/index.ts';

/** With more uncaught errors within a minute the host exits, so that a supervisor starts it again. */
const defectsPerMinuteMax = 10;

/**
 * Logs an uncaught error and goes on serving: the error is a bug in the handling of one request, the models run in
 * other processes, and the store survives a crash. Too many errors within a minute end the process.
 *
 * @returns removes the handler
 */
export function outliveDefects(options: {
  readonly exit: (code: number) => void;
  readonly source?: NodeJS.EventEmitter;
  readonly log: Log;
  readonly nowMs?: () => number;
}): () => void {
  const source = options.source ?? process;
  const { log } = options;
  const nowMs = options.nowMs ?? ((): number => performance.now());
  let recentMs: number[] = [];
  const onError = (error: unknown): void => {
    const atMs = nowMs();
    recentMs = [...recentMs.filter((earlierMs) => atMs - earlierMs < 60_000), atMs];
    if (recentMs.length > defectsPerMinuteMax) {
      log.error({ err: error, errors: recentMs.length }, 'too many errors within a minute that nothing caught: ending');
      options.exit(1);
      return;
    }
    log.error({ err: error }, 'a defect, please report it; the host goes on');
  };
  source.on('uncaughtException', onError);
  return () => void source.off('uncaughtException', onError);
}
