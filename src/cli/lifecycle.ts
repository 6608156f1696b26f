/** How a process that serves ends. */
import { constants } from 'node:os';

/** What `startHost` gives back. */
export interface RunningHost {
  readonly url: string;
  /** Lets accepted requests finish, at most as long as the host is configured to, and ends every process. */
  stop(): Promise<void>;
}

const signals = ['SIGTERM', 'SIGINT'] as const;

/** Beyond the drain limit, ending the instances may take this long before the process goes without them. */
const stopGraceMs = 5000;

/**
 * Waits for SIGTERM or SIGINT, then drains. Resolves to the exit code: 0 when every accepted request was finished, 1
 * when the drain limit cut some off, 128 + n when a second signal n asked to end at once (as shells report signals).
 */
export async function runUntilSignal(
  host: RunningHost,
  options: { readonly drainMs: number; readonly source?: NodeJS.EventEmitter; readonly log?: (line: string) => void },
): Promise<number> {
  const source = options.source ?? process;
  const log = options.log ?? ((line: string): void => void process.stderr.write(`${line}\n`));
  const { drainMs } = options;
  const nextSignal = async (): Promise<(typeof signals)[number]> =>
    await new Promise((resolve) => {
      for (const signal of signals) source.once(signal, () => resolve(signal));
    });
  const first = await nextSignal();
  const second = nextSignal();
  log(`turntable: ${first}: finishing accepted requests (again: end at once)`);
  const startedMs = performance.now();
  let timer: NodeJS.Timeout | undefined;
  const overdue = new Promise<number>((resolve) => {
    timer = setTimeout(() => resolve(1), drainMs + stopGraceMs);
  });
  const stopped = host.stop().then(
    () => (drainMs > 0 && performance.now() - startedMs >= drainMs ? 1 : 0),
    (error: unknown) => {
      log(`turntable: stopping failed: ${error instanceof Error ? error.message : String(error)}`);
      return 1;
    },
  );
  const exitCode = await Promise.race([stopped, overdue, second.then((signal) => 128 + constants.signals[signal])]);
  clearTimeout(timer);
  for (const signal of signals) source.removeAllListeners(signal);
  if (exitCode === 1) log('turntable: the drain limit passed before every accepted request was finished');
  return exitCode;
}
