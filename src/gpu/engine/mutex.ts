import { Semaphore } from '../../tools/index.ts';
import { GpuError } from '../types.ts';

/** Lets one in at a time; a caller whose run is cancelled while it waits gets {@link cancelled}. */
export class Mutex extends Semaphore {
  constructor() {
    super(1, cancelled);
  }
}

export const cancelled = (): GpuError => new GpuError('cancelled', 'the run was cancelled by its caller');
