import type { RecordedColdStart } from '../dashboard/index.ts';
import type { RanOnGpu } from '../../live/index.ts';

/** Timelines of large models are hundreds of kilobytes as JSON. */
const newestKept = 24;
/** Older cold starts that are kept, to look at the next morning. */
const slowestKept = 16;

/** The latest and the slowest measured cold starts, the newest first. */
export class ColdStarts {
  readonly all: RecordedColdStart[] = [];
  #nextId = 1;

  /** A run that loaded something, or that a load was ordered ahead of. */
  record(functionName: string, gpuName: string, cause: string, { result, gpu, mode, ahead, loadMs }: RanOnGpu): void {
    const { timeline } = result;
    if (timeline === undefined) return;
    this.all.unshift({
      id: this.#nextId++,
      atMs: Date.now(),
      functionName,
      gpu,
      gpuName,
      mode: mode.mode,
      // A load ordered ahead has loaded bytes, and the run has waited for it.
      loadedBytes: result.loadedBytes + (ahead?.bytes ?? 0),
      timeline,
      stallMs: loadMs,
      aheadMs: ahead?.loadMs ?? 0,
      cause,
    });
    if (this.all.length <= newestKept + slowestKept) return;
    const older = this.all.slice(newestKept);
    const fastest = older.reduce((least, each) => (each.timeline.latencyMs < least.timeline.latencyMs ? each : least));
    this.all.splice(this.all.indexOf(fastest), 1);
  }
}
