import type { LayerMethod } from './algorithm.ts';
import type { Span } from './link-clock.ts';

/** How a cold start proceeds; `interleave` is this project's own. */
export type ColdStartMode = 'baseline' | 'pipeswitch' | 'dha' | 'pt' | 'pt+dha' | 'interleave';

export const coldStartModes: readonly ColdStartMode[] = ['baseline', 'pipeswitch', 'dha', 'pt', 'pt+dha', 'interleave'];

/** Where the weights of one layer are when it executes, and how they get there. */
export interface LayerPlan {
  readonly name: string;
  readonly method: LayerMethod;
  /** The GPU whose PCIe link loads it; if not the primary, the weights go on over NVLink. Null if not loaded. */
  readonly link: number | null;
}

/** The same methods over the GPU's own link alone. */
export const ownLinkMode: Readonly<Record<ColdStartMode, ColdStartMode>> = {
  baseline: 'baseline',
  pipeswitch: 'pipeswitch',
  dha: 'dha',
  pt: 'pipeswitch',
  'pt+dha': 'dha',
  interleave: 'dha',
};

/** A mode that is in effect instead of the one that was asked for, and the reason. */
export interface Instead {
  readonly mode: ColdStartMode;
  readonly why: string;
}

export interface ColdStartPlan {
  /** As asked for. */
  readonly mode: ColdStartMode;
  /** Undefined if the mode is in effect. */
  readonly instead?: Instead;
  /** The GPU that executes. */
  readonly primary: number;
  /** Secondary GPUs whose links take part, in the order of their partitions. */
  readonly secondaries: readonly number[];
  readonly layers: readonly LayerPlan[];
  /** Bytes in the primary's memory after the cold start. */
  readonly bytesGpu: number;
}

/** The mode in effect, for people: 'pt+dha', or 'dha, 1 link: no NVLink found'. */
export function modeText({ mode, instead }: Pick<ColdStartPlan, 'mode' | 'instead'>): string {
  return instead === undefined ? mode : `${instead.mode}, ${instead.why}`;
}

/** Times of one layer, milliseconds from the start; undefined for a stage without work. */
export interface LayerTimes {
  readonly name: string;
  readonly method: LayerMethod;
  readonly link: number | null;
  /** Its weights were on the GPU from the beginning. */
  readonly resident: boolean;
  /** Its kernels read its weights from host memory. */
  readonly fromHost: boolean;
  /** The CPU issues its copies. */
  readonly issue: Span | undefined;
  /** Its weights cross a PCIe link, */
  readonly copy: Span | undefined;
  /** and NVLink, */
  readonly migration: Span | undefined;
  /** and are decoded. */
  readonly decode?: Span | undefined;
  readonly execution: Span;
  /** How long execution waited for the weights while neither GPU nor CPU had other work to do first. */
  readonly stallMs: number;
}

export interface Timeline {
  readonly latencyMs: number;
  readonly stallMs: number;
  readonly layers: readonly LayerTimes[];
}
