/**
 * More calls than the cores can serve, played to the scheduler alone: the scenes of `npm run bench -- overload` on a
 * virtual clock, with run times that vary as on a busy machine.
 */
import { Xoshiro } from '../../src/replay/index.ts';
import { policies, Scheduler, type Action, type Policy, type SchedulerEvent } from '../../src/schedule/index.ts';

export interface Caller {
  readonly perSecond: number;
  /** Additional calls, all at once at the beginning. */
  readonly burst?: number;
  readonly runMs: number;
  readonly sloMs: number;
  readonly admission?: Policy['admission'];
  /** The run time is offered; otherwise it is learned. */
  readonly isKnown?: boolean;
}

export interface Scene {
  readonly callers: readonly Caller[];
  readonly forMs: number;
  /** Earlier calls are not counted: the first ones teach the scheduler run times. */
  readonly fromMs?: number;
  /** Largest relative variation of a run's time. */
  readonly noise?: number;
  /** See {@link CpuPlace.holdMsMax}. Runs that share a core take no longer here. */
  readonly holdMsMax?: number;
}

export interface Count {
  calls: number;
  /** Not refused on arrival. */
  admitted: number;
  answered: number;
  onTime: number;
}

const cores = 2;
/** Calls that may wait for one function, the host's default (`cpu.queueMax`). */
const queueMax = 256;

/** Plays the scene and returns the counts by caller. */
export function playOverload(
  { callers, forMs, fromMs = 0, noise = 0, holdMsMax = Infinity }: Scene,
  seed: number,
): Count[] {
  const scheduler = new Scheduler({
    gpus: [],
    policy: policies.best,
    cpu: { cores, memoryBytes: Infinity, holdMsMax },
  });
  const source = new Xoshiro(seed);
  const random = (): number => source.uniform();
  const counts = callers.map((): Count => ({ calls: 0, admitted: 0, answered: 0, onTime: 0 }));
  const arrivals = callers
    .flatMap(({ perSecond, burst = 0 }, caller) => [
      ...Array.from({ length: (perSecond * forMs) / 1000 }, () => ({ atMs: random() * forMs, caller })),
      ...Array.from({ length: burst }, () => ({ atMs: 0, caller })),
    ])
    .sort((a, b) => a.atMs - b.atMs);
  const waiting = new Set<number>();
  const waitingOf = callers.map(() => 0);
  const running: { readonly invocation: number; readonly endMs: number; readonly runMs: number }[] = [];
  let nowMs = 0;

  const count = (invocation: number, field: keyof Count, by = 1): void => {
    const { atMs, caller } = arrivals[invocation]!;
    if (atMs >= fromMs) counts[caller]![field] += by;
  };
  const wakesMs: number[] = [];
  const carryOut = (action: Action): void => {
    if (action.kind === 'wake') wakesMs.push(action.atMs);
    if (!('invocation' in action)) return;
    const { invocation, kind } = action;
    const { caller } = arrivals[invocation]!;
    if (kind === 'wait') {
      waiting.add(invocation);
      waitingOf[caller]!++;
      return;
    }
    if (waiting.delete(invocation)) waitingOf[caller]!--;
    else if (kind === 'shed') count(invocation, 'admitted', -1);
    if (kind !== 'run-beside') return;
    const runMs = callers[caller]!.runMs * (1 + noise * (2 * random() - 1));
    running.push({ invocation, runMs, endMs: nowMs + runMs });
    running.sort((a, b) => a.endMs - b.endMs);
  };
  const tell = (event: SchedulerEvent): void => {
    for (const action of scheduler.handle(event, nowMs)) carryOut(action);
  };
  const endOne = (): void => {
    const { invocation, runMs, endMs } = running.shift()!;
    const { atMs, caller } = arrivals[invocation]!;
    nowMs = endMs;
    count(invocation, 'answered');
    if (nowMs - atMs <= callers[caller]!.sloMs) count(invocation, 'onTime');
    tell({ kind: 'finished', invocation, observed: { runMs } });
  };

  const playUntil = (untilMs: number): void => {
    for (;;) {
      const wakeMs = Math.min(...wakesMs);
      const endMs = running[0]?.endMs ?? Infinity;
      if (Math.min(wakeMs, endMs) > untilMs || (running.length === 0 && wakesMs.length === 0)) return;
      if (endMs <= wakeMs) endOne();
      else {
        wakesMs.splice(wakesMs.indexOf(wakeMs), 1);
        nowMs = wakeMs;
        tell({ kind: 'wake' });
      }
    }
  };

  for (const [functionIndex, { sloMs, runMs, isKnown = false, admission }] of callers.entries()) {
    const cpu = { latencyMs: isKnown ? runMs : undefined, cores: 1 };
    const sheet = { gpus: [], cpu, sloMs, priority: 0, pinned: false, ...(admission && { admission }) };
    tell({ kind: 'function-added', functionIndex, sheet });
  }
  for (const [invocation, { atMs, caller }] of arrivals.entries()) {
    playUntil(atMs);
    nowMs = atMs;
    count(invocation, 'calls');
    if (waitingOf[caller]! >= queueMax) continue;
    count(invocation, 'admitted');
    tell({ kind: 'arrival', invocation, functionIndex: caller });
  }
  playUntil(Infinity);
  return counts;
}
