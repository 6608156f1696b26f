/** Requests to the thread that pins host memory. It answers with a `Pinned` of host-pages.ts. */
import type { PinnedKind } from './types.ts';

export type PinRequest = { readonly context: number; readonly kind: PinnedKind; readonly bytes: number } & (
  { readonly op: 'pin' } | { readonly op: 'free'; readonly address: number }
);
