/** The faults and their order, all drawn from the seed: the same seed gives the same plan. */
import { Xoshiro } from '../../src/replay/index.ts';

/** The part that a fault affects. Two faults of one part never overlap. */
const parts = {
  'instance killed': 'instance',
  'instance stopped': 'instance',
  'host killed': 'host',
  'host told to end': 'host',
  'host stopped': 'host',
  'clock jumped': 'clock',
  'worker killed': 'worker',
  'worker told to end': 'worker',
  'worker stopped': 'worker',
  "worker's instance killed": 'worker',
  'Redis killed': 'redis',
  'Redis stopped': 'redis',
  'Redis connections cut': 'redis',
  'Redis flushed': 'redis',
  'disk full': 'disk',
  'disk read-only': 'disk',
  'GPU process killed': 'gpu',
  'GPU process stopped': 'gpu',
  'GPU host killed': 'gpu',
  'slow clients': 'clients',
  'half clients': 'clients',
} as const;

export type FaultKind = keyof typeof parts;

export const faultKinds = Object.keys(parts) as readonly FaultKind[];

export interface Fault {
  readonly kind: FaultKind;
  /** In [0, 1): selects one of several. */
  readonly victim: number;
  /** How long something stays stopped, away or full. */
  readonly holdMs: number;
  readonly jumpMs: number;
}

/** Simultaneous faults, and the number of answers before them. */
export interface Step {
  readonly faults: readonly Fault[];
  readonly answersBefore: number;
}

export interface PlanOptions {
  readonly seed: number;
  readonly kinds: readonly FaultKind[];
  readonly holdMsMax: number;
  readonly answersMax: number;
}

/** Endless rounds. Each has every kind once, in its own order; a third of the steps have two faults at once. */
export function* drawPlan({ seed, kinds, holdMsMax, answersMax }: PlanOptions): Generator<Step, never> {
  const random = new Xoshiro(seed);
  const drawFault = (kind: FaultKind): Fault => ({
    kind,
    victim: random.uniform(),
    holdMs: Math.round(holdMsMax * (0.2 + 0.8 * random.uniform())),
    jumpMs: Math.round((random.uniform() - 0.5) * 4 * 3_600_000),
  });
  for (;;) {
    const left = shuffled(kinds, random);
    for (let kind = left.pop(); kind !== undefined; kind = left.pop()) {
      const faults = [drawFault(kind)];
      const other = left.at(-1);
      if (other !== undefined && random.below(3) === 0 && !meet(kind, other)) {
        left.pop();
        faults.push(drawFault(other));
      }
      yield { faults, answersBefore: 1 + random.below(answersMax) };
    }
  }
}

/** A call is tried twice: it could meet two kills at once, and its answer would rightly be an error. */
function meet(kind: FaultKind, other: FaultKind): boolean {
  return parts[kind] === parts[other] || (ends(kind) && ends(other));
}

const ends = (kind: FaultKind): boolean => ['instance', 'worker', 'host'].includes(parts[kind]);

function shuffled<Item>(items: readonly Item[], random: Xoshiro): Item[] {
  const mixed = [...items];
  for (let last = mixed.length - 1; last > 0; last--) {
    const other = random.below(last + 1);
    [mixed[last], mixed[other]] = [mixed[other]!, mixed[last]!];
  }
  return mixed;
}
