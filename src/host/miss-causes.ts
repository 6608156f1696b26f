/** Why calls miss their SLO. */

/** Parts of a call's time that can make it late. `queue`: waiting for a turn. `body`: reading and decoding a large body. */
export const lateCauses = ['queue', 'load', 'handler', 'model', 'body', 'unexplained'] as const;
/** Why a call missed its SLO: the part of its time that was longest, or how it ended. */
export const missCauses = [...lateCauses, 'shed', 'failed'] as const;
export type MissCause = (typeof missCauses)[number];
