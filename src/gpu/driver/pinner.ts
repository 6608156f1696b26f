/**
 * Pins and frees host memory on a separate thread. The driver takes half a second for a GiB, which would block the
 * event loop.
 */
import { compiledModule, OnDemand } from '../../process/index.ts';
import type { HeldKind, Pinned } from './host-pages.ts';

export interface PinOrder {
  readonly context: number;
  readonly kind: HeldKind;
  readonly bytes: number;
}

export interface PinApi {
  /** @param order with an address where the kind is `given` */
  pin(order: PinOrder & { readonly address?: number }): Pinned;
  free(order: PinOrder & { readonly address: number }): Pinned;
}

export type Pinner = OnDemand<PinApi>;

export const pinnerOf = (libraryFile: string): Pinner =>
  new OnDemand({
    what: 'the thread that pins memory',
    inOrder: true,
    thread: {
      module: compiledModule('./pin-thread.js', import.meta.url),
      name: 'pinner',
      ends: 'between-messages',
      data: { libraryFile },
    },
  });
