/** Where an invocation ran and why, for headers, records and statistics. */
import type { PoolResult } from '../../cpu/index.ts';
import type { Start } from '../../schedule/index.ts';
import type { HostError } from '../errors.ts';
import type { Overflow } from '../../live/index.ts';
import type { Miss } from './miss-causes.ts';

/** How an invocation ended, against the SLO. A client's own mistake is none of these. */
export type Outcome = 'in_slo' | 'late' | 'shed' | 'failed';

interface Told {
  /** Why it ran elsewhere than it would have otherwise; undefined if it did not. */
  readonly overflow?: Overflow | undefined;
  /** It was late everywhere, and ran so that the calls behind it find their function there. */
  readonly isBringing?: true | undefined;
  /** The scheduler's prediction from arrival to answer; undefined if no scheduler was asked. */
  readonly predictedMs?: number | undefined;
  /** Why its weights were missing, if it waited for them. */
  readonly coldCause?: string | undefined;
  /** All parts of a request that ran in parts. The placement itself is that of the part that ended last. */
  readonly parts?: readonly PartTold[];
}

/** A part of a request, and where it ran. */
export interface PartTold {
  readonly rows: number;
  readonly placement: Placement;
}

/** Where an invocation ran. */
export type Placement = Told &
  (
    | { readonly kind: 'cpu-pool'; readonly coldStart: boolean }
    /**
     * `mode`: how missing weights were loaded, if any were missing. `isHandlerCold`: it waited for its handler to load.
     */
    | {
        readonly kind: 'gpu';
        readonly gpu: number;
        readonly start: Start;
        readonly mode: string;
        /** Why it is not the mode that is set. */
        readonly whyMode?: string | undefined;
        /** The plan variant that it ran under, for a function with several. */
        readonly variant?: string | undefined;
        /** Of its products, if not 32 bits. */
        readonly precision?: string | undefined;
        readonly isHandlerCold?: boolean;
      }
    /** Another place of this host ran it: `where`, in printable ASCII. */
    | { readonly kind: 'other'; readonly coldStart: boolean; readonly where: string }
    /** Another host of the fleet ran it, at the place in `placed`. */
    | {
        readonly kind: 'fleet-host';
        readonly coldStart: boolean;
        readonly host: string;
        readonly reason: string;
        readonly isGpu: boolean;
        readonly placed: string;
      }
  );

/** The result of an invocation. */
export interface Ran {
  readonly result: PoolResult;
  readonly placement: Placement;
  /** Nothing reads its inputs any more but what `keepTensors` was told of. Absent: another place may still read them. */
  readonly inputsAreSpent?: boolean;
}

/** Room for eight parts at other hosts. */
const partsCharactersMax = 1000;

/** The placement for `X-Turntable-Placement`. */
export function placementText(placement: Placement): string {
  const { parts } = placement;
  if (parts === undefined) return placeText(placement);
  const each = parts.map((part) => `${part.rows} rows on ${placeText({ ...part.placement, overflow: undefined })}`);
  return inHeader(`${parts.length} parts: ${each.join(', ')}`, partsCharactersMax);
}

function placeText(placement: Placement): string {
  const { overflow } = placement;
  const because = overflow === undefined ? '' : ` overflow: ${inHeader(overflow.words)}`;
  switch (placement.kind) {
    case 'cpu-pool':
      return `cpu pool ${placement.coldStart ? 'cold' : 'warm'}${because}`;
    case 'gpu': {
      const { gpu, start, mode, whyMode, precision, isHandlerCold = false, isBringing = false } = placement;
      const loaded = start === 'warm' ? '' : ` ${mode}${whyMode === undefined ? '' : `, ${whyMode}`}`;
      const notes = [
        precision === undefined ? '' : `, ${precision}`,
        isHandlerCold ? ', handler cold' : '',
        isBringing ? ', for the calls behind it' : '',
      ];
      return `gpu${gpu} ${start === 'disk' ? 'from disk' : start}${loaded}${notes.join('')}`;
    }
    case 'fleet-host':
      return inHeader(`host ${placement.host} (${placement.reason}): ${placement.placed}`);
    case 'other':
      return `${placement.where}${placement.coldStart ? ' cold' : ''}${because}`;
  }
}

/**
 * A header is one line of printable ASCII, and should stay short. Of a long text its middle is left out: what is the
 * matter stands at the beginning, and why at the end.
 */
export function inHeader(text: string, charactersMax = 200): string {
  const line = text.replaceAll(/[^\x20-\x7e]+/g, ' ');
  if (line.length <= charactersMax) return line;
  const start = Math.floor(charactersMax / 3);
  return `${line.slice(0, start)}${gap}${line.slice(gap.length + start - charactersMax)}`;
}

const gap = ' ... ';

/** Whether the call waited for weights, or for a handler. */
export function isColdStart(placement: Placement): boolean {
  if (placement.kind !== 'gpu') return placement.coldStart;
  return placement.start !== 'warm' || placement.isHandlerCold === true;
}

/** The kinds of places that can answer an invocation, as history and page count them. */
export const placeNames = ['gpuWarm', 'gpuCold', 'cpu', 'remote'] as const;
export type RanOn = (typeof placeNames)[number];

/** How many invocations any place has answered. */
export const answeredOf = (counts: Readonly<Record<RanOn, number>>): number =>
  placeNames.reduce((sum, name) => sum + counts[name], 0);

/** The placement, as the history counts it. */
export function ranOn(placement: Placement): RanOn {
  switch (placement.kind) {
    case 'cpu-pool':
      return 'cpu';
    case 'gpu':
      return isColdStart(placement) ? 'gpuCold' : 'gpuWarm';
    case 'other':
    case 'fleet-host':
      return 'remote';
  }
}

/** One ended invocation: all that statistics, history and recordings of the traffic know of it. */
export interface InvocationRecord {
  /** Of its version. */
  readonly key: string;
  readonly functionName: string;
  readonly version: string;
  /** Instant (performance.now()) at which the request arrived. */
  readonly arrivalMs: number;
  /** From then to the end. */
  readonly latencyMs: number;
  readonly sloMs: number;
  /** Inferences in the request. */
  readonly rows: number;
  /** Whether its handler or model began to run: only then was it a use of its function. */
  readonly hasRun: boolean;
  /** Undefined if the client's own input or leaving ended it. */
  readonly outcome: Outcome | undefined;
  /** Why it missed its SLO, and by how much, if it did. */
  readonly miss: Miss | undefined;
  /** Its answer, with the times and the placement; undefined without one. Recorders must not keep it: it has outputs. */
  readonly ran?: Ran | undefined;
  /** Why it has none. */
  readonly failure?: HostError | undefined;
}

/** Records the host's traffic. Called on the path of every request: it must neither block nor throw. */
export interface InvocationRecorder {
  record(record: InvocationRecord): void;
}
