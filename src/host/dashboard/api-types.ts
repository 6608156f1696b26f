/**
 * What the paths of the dashboard's API answer, for the page: the types of the functions that make the answers. Times of
 * day are milliseconds since 1970; all other units are in the names. No code.
 */
import type { TroubleRow } from './trouble.ts';
import type { functionAnswer } from './views.ts';

export type { PredictionPoint, TrafficColumns, TrafficTotals } from '../history/history.ts';
export type { MachineAnswer } from './machine.ts';
export type * from './timeline-types.ts';
export type { MissedBy, TroubleAnswer, TroubleRow } from './trouble.ts';
export type {
  ErrorsAnswer,
  EventAnswer,
  FunctionRow,
  FunctionsAnswer,
  GpuMemory,
  HistoryAnswer,
  MemoryAnswer,
  RecordedColdStarts,
  Resident,
  SecondTotals,
  TickEvent,
} from './views.ts';

/** `trouble`: why its calls missed the SLO within the range; null if under 1% of them did. */
export type FunctionAnswer = ReturnType<typeof functionAnswer> & { readonly trouble: TroubleRow | null };
