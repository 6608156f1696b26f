/** What the thread that pins host memory is asked, and answers. Nothing here runs. */

/** cuMemHostAlloc: usable by all contexts, and mapped into the devices' address space. */
const portable = 1;
const deviceMap = 2;
export const pinFlags = portable | deviceMap;

export type PinRequest = { readonly context: number } & (
  { readonly op: 'pin'; readonly bytes: number } | { readonly op: 'free'; readonly address: number }
);

export interface Pinned {
  readonly call: 'cuCtxSetCurrent' | 'cuMemHostAlloc' | 'cuMemFreeHost';
  readonly status: number;
  /** 0 unless memory was pinned. */
  readonly address: number;
}
