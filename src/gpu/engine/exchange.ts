/** What a run takes from others and gives to them while it is under way. */
import type { DeviceAddress } from '../driver/types.ts';
import type { ProgramTensor } from '../program/types.ts';

export interface Exchange {
  /** By launch: inputs that have to be there before it is submitted. All others are given with the run. */
  readonly before: ReadonlyMap<number, readonly ProgramTensor[]>;
  /** By launch: outputs that are complete after it and wanted at once. */
  readonly after: ReadonlyMap<number, readonly ProgramTensor[]>;
  /** Names of the inputs that come this way. */
  readonly arriving: ReadonlySet<string>;
  /** Outputs of the program that are results of the run; the others only leave this way. */
  readonly results: ReadonlySet<string>;
  /** Resolves with the pinned memory in which an input is complete; rejects when it never will be. */
  arrived(name: string): Promise<DeviceAddress>;
  /** Pinned memory for an output. */
  placeOf(name: string): DeviceAddress;
  /** The output is complete there. */
  left(name: string): void;
  /** The GPU failed: nothing more will leave. */
  failed(error: unknown): void;
}
