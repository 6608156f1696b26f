/** Plans one ladder and ends. */
import { parentPort, workerData } from 'node:worker_threads';
import { planLadder, type ChrionPlan } from '../../plan/index.ts';
import type { GraphProfile } from '../../profile/index.ts';

export interface LadderQuestion {
  readonly profile: GraphProfile;
  readonly options: { readonly cores: number; readonly limitMs: number; readonly rungsMax: number };
}

export type LadderAnswer =
  { readonly ok: true; readonly ladder: readonly ChrionPlan[] } | { readonly ok: false; readonly message: string };

function answer({ profile, options }: LadderQuestion): LadderAnswer {
  try {
    return { ok: true, ladder: planLadder(profile, options) };
  } catch (error) {
    return { ok: false, message: error instanceof Error ? error.message : String(error) };
  }
}

// oxlint-disable-next-line unicorn/require-post-message-target-origin -- a thread's port, not a window
parentPort?.postMessage(answer(workerData as LadderQuestion));
