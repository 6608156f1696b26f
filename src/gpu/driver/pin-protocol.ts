/** What the thread that pins host memory is asked; it answers with `Pinned` of host-pages.ts. Nothing here runs. */
import type { PinnedKind } from './types.ts';

export type PinRequest = { readonly context: number; readonly kind: PinnedKind; readonly bytes: number } & (
  { readonly op: 'pin' } | { readonly op: 'free'; readonly address: number }
);
