/** Tensors that a run takes from other parts and gives to them while it is under way. */
import type { DeviceAddress } from '../driver/types.ts';
import type { ProgramTensor } from '../program/types.ts';

export interface Exchange {
  /** By launch: inputs that must be there before it is submitted. All others are given with the run. */
  readonly before: ReadonlyMap<number, readonly ProgramTensor[]>;
  /** By launch: outputs that are complete after it and needed at once. */
  readonly after: ReadonlyMap<number, readonly ProgramTensor[]>;
  /** Names of the inputs that arrive during the run. */
  readonly arriving: ReadonlySet<string>;
  /** Outputs of the program that are results of the run; the others are only passed on. */
  readonly results: ReadonlySet<string>;
  /** Resolves with the pinned memory of a complete input; rejects if it will never be complete. */
  arrived(name: string): Promise<DeviceAddress>;
  /** Pinned memory for an output. */
  placeOf(name: string): DeviceAddress;
  /** The output is complete in its place. */
  left(name: string): void;
  /** The GPU failed: no further outputs will come. */
  failed(error: unknown): void;
}
