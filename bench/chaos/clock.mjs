// Loaded into a host before anything else. On SIGUSR2 its wall clock jumps by the milliseconds in a file, like a
// machine's clock that is set. The monotonic clock (performance.now, timers) goes on, as on such a machine.
import { readFileSync } from 'node:fs';

const file = process.env.CHAOS_CLOCK;
// For this process only: a child would end on the signal.
delete process.env.NODE_OPTIONS;
delete process.env.CHAOS_CLOCK;
let offsetMs = 0;
const RealDate = Date;
globalThis.Date = class Date extends RealDate {
  constructor(...given) {
    if (given.length === 0) super(RealDate.now() + offsetMs);
    else super(...given);
  }
  static now() {
    return RealDate.now() + offsetMs;
  }
};
process.on('SIGUSR2', () => {
  offsetMs += Number(readFileSync(file, 'utf8'));
});
