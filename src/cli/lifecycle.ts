/** Shuts a serving process down after a signal. */
import { closeSync, openSync } from 'node:fs';
import { constants } from 'node:os';
import type { RunningHost } from '../host/index.ts';
import { tellServiceManager } from '../process/index.ts';
import type { Log } from '../tools/index.ts';
import { leaveTerminal } from './output.ts';

type Signal = 'SIGTERM' | 'SIGINT' | 'SIGHUP';

/** After the drain limit the instances get this long to end. Then the process exits without them. */
const stopGraceMs = 5000;

/** Whether this process was started from a terminal, whose end SIGHUP then means. */
export function hasTerminal(): boolean {
  try {
    closeSync(openSync('/dev/tty', 'r'));
    return true;
  } catch {
    return false;
  }
}

/**
 * Waits for SIGTERM or SIGINT, then drains. SIGHUP is the end of the terminal, and drains too; without a terminal it asks
 * for a reload, as daemons take it, and ends nothing. Resolves to the exit code: 0 when every accepted request was finished, 1
 * when the drain limit cut some off, 128 + n when a second signal n asked to end at once (as shells report signals).
 */
export async function runUntilSignal(
  host: Pick<RunningHost, 'stop'>,
  options: {
    readonly drainMs: number;
    readonly reload?: () => void;
    readonly isFromTerminal?: boolean;
    readonly source?: NodeJS.EventEmitter;
    readonly log: Log;
  },
): Promise<number> {
  const source = options.source ?? process;
  const { drainMs, log, reload = () => undefined, isFromTerminal = hasTerminal() } = options;
  const signals: readonly Signal[] = ['SIGTERM', 'SIGINT', ...(isFromTerminal ? (['SIGHUP'] as const) : [])];
  if (!isFromTerminal) source.on('SIGHUP', reload);
  // One listener for all: a second signal may arrive before the promise of the first has had its turn.
  const awaited: ((signal: Signal) => void)[] = [];
  const [one, another] = [0, 1].map(() => new Promise<Signal>((resolve) => awaited.push(resolve)));
  const onSignal = (signal: Signal): void => awaited.shift()?.(signal);
  for (const signal of signals) source.on(signal, onSignal);
  const first = await one!;
  if (first === 'SIGHUP') leaveTerminal();
  tellServiceManager('STOPPING=1');
  log.info({ signal: first }, 'finishing accepted requests; a second signal ends at once');
  const cutOff = (): number => {
    log.warn({ drainMs }, 'the drain limit passed before every accepted request was finished');
    return 1;
  };
  let timer: NodeJS.Timeout | undefined;
  const overdue = new Promise<number>((resolve) => {
    timer = setTimeout(() => resolve(cutOff()), drainMs + stopGraceMs);
  });
  const stopped = host.stop().then(
    (clean) => (clean ? 0 : cutOff()),
    (error: unknown) => {
      log.error({ err: error }, 'stopping failed');
      return 1;
    },
  );
  const exitCode = await Promise.race([stopped, overdue, another!.then((signal) => 128 + constants.signals[signal])]);
  clearTimeout(timer);
  for (const signal of signals) source.off(signal, onSignal);
  source.off('SIGHUP', reload);
  return exitCode;
}
