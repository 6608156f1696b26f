/** What a host asks of a place beside its GPUs and its CPU pools: the workers, or one that an embedding program adds. */
import type { PoolInput, PoolResult } from '../../cpu/index.ts';
import type { LivePlace } from '../../live/index.ts';
import type { OverflowOptions } from '../../queue/index.ts';

export interface OtherPlace extends LivePlace {
  /** What calls that come here from elsewhere are counted under: `worker`. */
  readonly countedAs: string;
  /** Whether it runs handlers, unless they invoke other functions. One that does not is given the model's input. */
  readonly runsHandlers: boolean;
  /**
   * Runs a call that the scheduler has placed here.
   *
   * @throws what {@link refusalOf} knows if another place may run it; any other error ends the call
   */
  run(key: string, input: PoolInput, options: OverflowOptions): Promise<RanThere>;
  /** Why another place is to run a call that failed with this; undefined: it would fail there too. */
  refusalOf(error: unknown): string | undefined;
}

export interface RanThere {
  readonly result: PoolResult;
  /** For the reply: `remote worker lab-7`. Printable ASCII. */
  readonly where: string;
}
