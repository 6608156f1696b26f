/** Classifies errors of the GPU process by what they concern. */
import { GpuError, type GpuErrorCode } from '../../gpu/index.ts';

/** Whether others had the memory that it needed. */
export const isOfRoom = ({ code }: GpuError): boolean => code === 'out-of-memory' || code === 'host-memory';

/** Whether the GPU process is the cause, or gone. */
export const isOfProcess = (error: unknown): boolean =>
  error instanceof GpuError && error.retriable && !isOfRoom(error);

/** @throws the work's error, unless the process is gone, or the error has this code */
export async function unlessItDied(work: Promise<unknown>, harmless?: GpuErrorCode): Promise<void> {
  try {
    await work;
  } catch (error) {
    if (!isOfProcess(error) && !(error instanceof GpuError && error.code === harmless)) throw error;
  }
}
