/** Fourier transforms. */
import { ordinary, sizedFrom, type OperatorFacts } from '../facts.ts';

const unfollowed: OperatorFacts = { ...ordinary, shapes: 'run', rows: 'unknown' };

export const signal = {
  DFT: { ...unfollowed, arguments: sizedFrom(1) },
  STFT: { ...unfollowed, arguments: sizedFrom(1, 2) },
} satisfies Record<string, OperatorFacts>;
