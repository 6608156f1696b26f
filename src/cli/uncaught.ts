/** What a host does about an error that nothing caught. */

/** More of them within a minute are no accident any more: a supervisor should start the host anew. */
const defectsPerMinuteMax = 10;

/**
 * Goes on serving after an error that nothing caught, and says so: it is a defect in the handling of one request, and
 * the models, their state and the store are not in this process or survive its end. When they pile up, it ends the
 * process.
 *
 * @returns takes the handler away again
 */
export function outliveDefects(options: {
  readonly exit: (code: number) => void;
  readonly source?: NodeJS.EventEmitter;
  readonly log?: (line: string) => void;
  readonly nowMs?: () => number;
}): () => void {
  const source = options.source ?? process;
  const log = options.log ?? ((line: string): void => void process.stderr.write(`${line}\n`));
  const nowMs = options.nowMs ?? ((): number => performance.now());
  let recentMs: number[] = [];
  const onError = (error: unknown): void => {
    const text = error instanceof Error ? (error.stack ?? error.message) : String(error);
    const atMs = nowMs();
    recentMs = [...recentMs.filter((earlierMs) => atMs - earlierMs < 60_000), atMs];
    if (recentMs.length > defectsPerMinuteMax) {
      log(`turntable: ${recentMs.length} errors within a minute that nothing caught; ending. The last: ${text}`);
      options.exit(1);
      return;
    }
    log(`turntable: a defect, please report it; the host goes on. ${text}`);
  };
  source.on('uncaughtException', onError);
  return () => void source.off('uncaughtException', onError);
}
