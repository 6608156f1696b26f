/** An event simulation of the queue in SERF's formula: slower than the formula, and right where the formula is not. */
import { PlanError } from '../../src/plan/index.ts';
import { checkService } from '../../src/plan/serf/predict.ts';

export interface ServiceSimulationOptions {
  /** Milliseconds of a request while 1, 2, ... c requests run. */
  readonly serviceTimeMs: readonly number[];
  readonly ratePerSecond: number;
  /**
   * When running requests slow each other down. `start`: the number of running requests at its own start sets a
   * request's time. `fluid`: all change speed whenever one starts or ends.
   */
  readonly interference: 'start' | 'fluid';
  /** Counted requests, after a tenth as many that only fill the queue. */
  readonly requests: number;
  readonly seed: number;
  /** Called for each counted request as it is done. */
  readonly onDone?: (latencyMs: number, serviceMs: number, nowMs: number) => void;
}

export interface ServiceSimulation {
  readonly latencyMs: number;
  readonly waitMs: number;
  readonly serviceMs: number;
  /** 99th percentile of the latency. */
  readonly latencyMsP99: number;
}

interface Running {
  readonly arrivedMs: number;
  readonly startedMs: number;
  /** Reading of the work clock at which it is done. */
  readonly due: number;
}

/**
 * Poisson arrivals, first come first served, at most c at once. One clock of work serves both kinds of interference.
 * For `start` it runs like time and each request needs its milliseconds; for `fluid` it runs at the speed of the
 * running requests and each needs 1.
 */
export function simulateService(options: ServiceSimulationOptions): ServiceSimulation {
  const { serviceTimeMs, ratePerSecond, interference, requests, seed, onDone } = options;
  checkService(serviceTimeMs, ratePerSecond);
  if (ratePerSecond === 0) throw new PlanError('the rate is 0: nothing arrives, so there is nothing to simulate');
  const concurrency = serviceTimeMs.length;
  const meanGapMs = 1000 / ratePerSecond;
  const random = randomSource(seed);
  const gapMs = (): number => -Math.log(1 - random()) * meanGapMs;
  const timeMs = (running: number): number => serviceTimeMs[Math.max(running, 1) - 1] ?? 0;

  const skipped = Math.ceil(requests / 10);
  const latencies = new Float64Array(requests);
  let waitSumMs = 0;
  let serviceSumMs = 0;
  let nowMs = 0;
  let work = 0;
  let arrivalMs = gapMs();
  const running: Running[] = [];
  const waiting: number[] = [];
  let firstWaiting = 0;

  const start = (arrivedMs: number): void => {
    const needed = interference === 'start' ? timeMs(running.length + 1) : 1;
    running.push({ arrivedMs, startedMs: nowMs, due: work + needed });
  };
  const record = (request: Running, index: number): void => {
    if (index < 0) return;
    latencies[index] = nowMs - request.arrivedMs;
    waitSumMs += request.startedMs - request.arrivedMs;
    serviceSumMs += nowMs - request.startedMs;
    onDone?.(nowMs - request.arrivedMs, nowMs - request.startedMs, nowMs);
  };

  for (let done = 0; done < requests + skipped;) {
    const next = earliest(running);
    const speed = interference === 'start' ? 1 : 1 / timeMs(running.length);
    const dueMs = next === undefined ? Infinity : nowMs + (next.due - work) / speed;
    if (next === undefined || arrivalMs < dueMs) {
      work += (arrivalMs - nowMs) * speed;
      nowMs = arrivalMs;
      arrivalMs = nowMs + gapMs();
      if (running.length < concurrency) start(nowMs);
      else waiting.push(nowMs);
      continue;
    }
    work = next.due;
    nowMs = dueMs;
    running.splice(running.indexOf(next), 1);
    record(next, done - skipped);
    done++;
    const arrivedMs = waiting[firstWaiting];
    if (arrivedMs === undefined) continue;
    firstWaiting++;
    start(arrivedMs);
    if (firstWaiting === 1024) {
      waiting.splice(0, firstWaiting);
      firstWaiting = 0;
    }
  }
  latencies.sort();
  return {
    latencyMs: (waitSumMs + serviceSumMs) / requests,
    waitMs: waitSumMs / requests,
    serviceMs: serviceSumMs / requests,
    latencyMsP99: latencies[Math.ceil(requests * 0.99) - 1] ?? 0,
  };
}

function earliest(running: readonly Running[]): Running | undefined {
  let first = running[0];
  for (const request of running) if (first !== undefined && request.due < first.due) first = request;
  return first;
}

/** Numbers in [0, 1) from a 32-bit seed: a Weyl sequence, mixed. */
function randomSource(seed: number): () => number {
  // Mixed as well, so that near seeds do not start near each other on the one sequence.
  let state = mixed(seed >>> 0);
  return () => {
    state = (state + 0x9e3779b9) >>> 0;
    return mixed(state) / 2 ** 32;
  };
}

/** Two rounds of multiply and xor-shift, after which every bit depends on every other. */
function mixed(bits: number): number {
  let value = Math.imul(bits ^ (bits >>> 16), 0x21f0aaad);
  value = Math.imul(value ^ (value >>> 15), 0x735a2d97);
  return (value ^ (value >>> 15)) >>> 0;
}
