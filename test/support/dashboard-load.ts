/** A host whose dashboard has much to show. */
import { functionVersion } from '../host/fake-store.ts';
import { startTestHost, type TestHost } from '../host/test-host.ts';
import { ranOnCpu } from './ran-on-cpu.ts';

const hourMs = 3_600_000;

/** Functions named `function-0` and so on, with an hour of calls behind them. */
export async function startHostWithHistory({
  functions,
  calls,
}: {
  readonly functions: number;
  readonly calls: number;
}): Promise<TestHost> {
  const host = await startTestHost({ logLevel: 'silent' });
  const nowMs = performance.now();
  for (let index = 0; index < functions; index++) host.store.put(functionVersion(`function-${index}`));
  for (let count = 0; count < calls; count++) {
    const latencyMs = 5 + ((count * 7919) % 120);
    host.history.record({
      key: `function-${(count * 31) % functions}@1`,
      rows: 1,
      hasRun: true,
      functionName: `function-${(count * 31) % functions}`,
      version: '1',
      arrivalMs: nowMs - 0.99 * hourMs + (count * 0.99 * hourMs) / calls,
      latencyMs,
      sloMs: 100,
      outcome: latencyMs <= 100 ? 'in_slo' : 'late',
      miss: latencyMs <= 100 ? undefined : { cause: 'model', lateMs: latencyMs - 100, unexplainedMs: 0 },
      ran: ranOnCpu({ loadMs: 3, inferMs: latencyMs }, count % 97 === 0),
    });
  }
  return host;
}
