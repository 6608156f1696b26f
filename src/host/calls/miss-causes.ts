/** Why calls miss their SLO. */

/**
 * Parts of a call's time that can make it late. `queue`: waiting for a turn. `away`: at a worker or another host, beyond
 * what that says of its time there. `upload`: its client sent the body slowly. `body`: decoding large bodies, its own and
 * those before it. `busy`: the host had others' requests to do first, its instance had no core, or no part accounts for it
 * while the cores were full or the host's event loop was late.
 */
export const lateCauses = [
  'queue',
  'load',
  'handler',
  'model',
  'away',
  'upload',
  'body',
  'busy',
  'unexplained',
] as const;
/** Why a call missed its SLO: the part of its time that was longest, or how it ended. */
export const missCauses = [...lateCauses, 'shed', 'failed'] as const;
export type MissCause = (typeof missCauses)[number];

/** A call that missed its SLO. */
export interface Miss {
  readonly cause: MissCause;
  /** Its time beyond the SLO, in milliseconds; 0 if it was shed or failed before that. */
  readonly lateMs: number;
  /** As much of that as no measured part of its time explains. */
  readonly unexplainedMs: number;
}
