import { callsAsReady } from './calls-as-ready.ts';
import { gpuDevice, type Devices } from './devices.ts';
import { lanesOf, runsIn, type Lanes } from './lanes.ts';
import type { Network } from './network.ts';
import { nothing, Timeline } from './timeline.ts';

/** A selection with its calls. */
export type Merged = ReturnType<typeof mergedCalls>;

/** 'quick' tries few ways, to compare many selections; 'thorough' gives a plan's final times and is never slower. */
export type Effort = 'quick' | 'thorough';

/** How long a call may go on before it ends for others that wait, in multiples of the cost of a call. */
const paces = { quick: [1, 4], thorough: [1, 4, 2, 8, Infinity] } as const;
/** Limits of the search along the critical path: number of timelines, and number times operators on large graphs. */
const triesMost = 24;
const triesWork = 60_000;

/**
 * Groups the operators of each core into calls. A call costs {@link Network.callMs}; it starts when all its inputs are
 * there, and releases its outputs only at its end. Several ways are tried, all on runs of operators that are never
 * worth dividing ({@link runsIn}): each run as a call, and calls of all that is ready when a core is free, ended early
 * if others wait ({@link callsAsReady}). From the fastest of these, calls along the critical path are divided and
 * joined as long as that helps.
 *
 * If calls cost nothing, the first way is never slower than another and is the only one tried.
 */
export function mergedCalls(network: Network, order: Int32Array, cores: number, devices: Devices, effort: Effort) {
  const lanes = lanesOf(network, order, cores, devices);
  const timeline = new Timeline(lanes);
  const runs = runsIn(lanes);
  let best: Way = { starts: runs, latencyMs: timeline.run(runs) };
  // Placement order is a valid order for every run, so runs never wait for each other.
  if (best.latencyMs === Infinity) throw new Error('single operators wait for one another');
  if (network.callMs > 0 && lanes.startOf[1] !== lanes.count) {
    const way = (starts: Uint8Array): Way => ({ starts, latencyMs: timeline.run(starts) });
    for (const pace of paces[effort]) best = better(best, way(callsAsReady(lanes, runs, pace * network.callMs)));
    let tries = effort === 'quick' ? 0 : Math.min(triesMost, Math.ceil(triesWork / network.count));
    for (let found = true; found && tries > 0;) {
      found = false;
      timeline.run(best.starts);
      for (const starts of changes(lanes, best.starts, runs, timeline)) {
        if (tries-- <= 0) break;
        const next = better(best, way(starts));
        found = next !== best;
        best = next;
        if (found) break;
      }
    }
    timeline.run(best.starts);
  }
  return {
    ...best,
    lanes,
    /** Holds the times of these calls. */
    timeline,
  };
}

interface Way {
  /** 1 at each position of the lanes where a call begins, and at each operator on the GPU. */
  readonly starts: Uint8Array;
  readonly latencyMs: number;
}

/** The faster one; of equally fast ones the one with fewer calls. */
function better(best: Way, other: Way): Way {
  if (other.latencyMs !== best.latencyMs) return other.latencyMs < best.latencyMs ? other : best;
  return callCount(other.starts) < callCount(best.starts) ? other : best;
}

function callCount(starts: Uint8Array): number {
  let count = 0;
  for (const start of starts) count += start;
  return count;
}

/**
 * Changes to calls that may shorten the critical path, most promising first: a cut after an operator that another
 * device waited for, so that its output is released early; a cut before an operator that waited, so that the rest goes
 * ahead; and joins of calls in sequence without a wait. First all cuts at once, then each alone; then the joins
 * likewise.
 */
function* changes(
  { laneOf, startOf, count }: Lanes,
  starts: Uint8Array,
  runs: Uint8Array,
  timeline: Timeline,
): Generator<Uint8Array> {
  const cuts = new Set<number>();
  const joins = new Set<number>();
  const headOf = (position: number): number => {
    let head = position;
    while (starts[head] === 0) head--;
    return head;
  };
  /** Cuts at the first run that begins at or after `position`, if it is within the call. */
  const cutFrom = (position: number): void => {
    let at = position;
    while (at < count && runs[at] === 0) at++;
    if (at < count && starts[at] === 0) cuts.add(at);
  };
  let head = headOf(Math.max(timeline.endMs.indexOf(timeline.latencyMs), 0));
  // Each step goes back in time, to the cause of the late start.
  for (let steps = 0; steps < count; steps++) {
    const lane = laneOf[head] as number;
    const before = timeline.heldUpBy[head] ?? nothing;
    if (before === nothing) {
      if (head === startOf[lane]) break;
      if (lane !== gpuDevice) joins.add(head);
      head = headOf(head - 1);
      continue;
    }
    if (lane !== gpuDevice) cutFrom(timeline.heldUp[head] ?? head);
    if (laneOf[before] !== gpuDevice) cutFrom(before + 1);
    head = headOf(before);
  }
  const changed = (which: Iterable<number>, value: 0 | 1): Uint8Array => {
    const copy = starts.slice();
    for (const position of which) copy[position] = value;
    return copy;
  };
  if (cuts.size > 1) yield changed(cuts, 1);
  for (const cut of cuts) yield changed([cut], 1);
  if (joins.size > 1) yield changed(joins, 0);
  for (const join of joins) yield changed([join], 0);
}
