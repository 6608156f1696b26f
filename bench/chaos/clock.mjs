// Loaded into a host before anything else: its wall clock jumps by the milliseconds in a file whenever SIGUSR2 comes, as the clock
// of a machine does that is set. The monotonic clock (performance.now, timers) goes on, as there.
import { readFileSync } from 'node:fs';

const file = process.env.CHAOS_CLOCK;
// Of this process alone: what it starts would end on the signal.
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
