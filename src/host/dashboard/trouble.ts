/** `GET /api/trouble`: how many functions miss their SLO, the worst of them, and where their time went. */
import { mapInSlices } from '../slices.ts';
import type { MissCauses, TroubleAnswer, TroubleRow } from './api-types.ts';
import type { ViewSources } from './views.ts';

/** A function below this misses its SLO; the table's filter `is:missing` has the same limit. */
const goodputShareMin = 0.99;
const worstMax = 5;

export async function troubleAnswer(sources: ViewSources, rangeMs: number, nowMs: number): Promise<TroubleAnswer> {
  const { registry, history } = sources;
  const names = registry.names();
  let called = 0;
  const refused: { name: string; calls: number }[] = [];
  const missing = await mapInSlices(names, (name): TroubleRow | undefined => {
    const version = registry.find(name);
    if (version === undefined) return undefined;
    const counts = history.counts(history.span(rangeMs, nowMs, name), name);
    const missed = counts.late + counts.shed + counts.failed;
    const ended = missed + counts.in_slo;
    if (ended > 0) called++;
    if (counts.client > 0) refused.push({ name, calls: counts.client });
    if (ended === 0 || counts.in_slo / ended >= goodputShareMin) return undefined;
    const causes: MissCauses = {
      queue: counts.lateQueue,
      load: counts.lateLoad,
      handler: counts.lateHandler,
      model: counts.lateModel,
      host: counts.lateHost,
      shed: counts.shed,
      failed: counts.failed,
    };
    const { sloMs } = version.settings;
    return { name, sloMs, ended, missed, goodputShare: counts.in_slo / ended, causes, clientErrors: counts.client };
  });
  const found = missing.filter((row) => row !== undefined);
  return {
    rangeMs,
    atMs: nowMs,
    functions: names.length,
    called,
    missing: found.length,
    refused: {
      calls: refused.reduce((sum, { calls }) => sum + calls, 0),
      functions: refused.length,
      most: refused.toSorted((one, other) => other.calls - one.calls)[0]?.name ?? null,
    },
    worst: found.toSorted((one, other) => other.missed - one.missed).slice(0, worstMax),
  };
}
