/** Replay: traces are read or generated, run on a virtual clock or against a live host, and the results reported. */
export type * from './types.ts';
export { TraceError } from './traces/error.ts';
export { azure2019Columns, readAzure2019 } from './traces/azure-2019.ts';
export { azure2021Header, readAzure2021 } from './traces/azure-2021.ts';
export {
  openTable,
  openTrace,
  traceFormatOf,
  type OpenedTrace,
  type OpenTraceOptions,
  type TraceFormat,
} from './traces/open.ts';
export { minutePlacements, type MinutePlacement, type SyncTrace } from './traces/place.ts';
export { readRecorded, type RecordedOutcome, type TraceHeading, type TraceLine } from './traces/recorded.ts';
export { TraceWriter, writeTrace } from './traces/trace-writer.ts';
export {
  foldTrace,
  limitTrace,
  scaleTrace,
  sliceTrace,
  summarizeTrace,
  type TraceSummary,
} from './traces/transform.ts';
export {
  burstTrace,
  diurnalTrace,
  poissonTrace,
  type ArrivalOptions,
  type BurstOptions,
  type DiurnalOptions,
  type PoissonOptions,
  type Popularity,
} from './generate/arrivals.ts';
export { azureLikeKinds, azureLikeLoads, azureLikeTrace, type AzureLikeOptions } from './generate/azure-like.ts';
export {
  functionOrders,
  instanceNames,
  orderGroups,
  paperMix,
  type FunctionGroup,
  type FunctionOrder,
} from './generate/functions.ts';
export { MinstdRandom, Xoshiro, type RandomSource } from './generate/random.ts';
export type { GpuChange, SimulatedRun, SimulatorOptions } from './simulator-options.ts';
export { runSimulation } from './simulator.ts';
export { OfferCache, type FunctionSettings } from './offer-cache.ts';
export { simulate, type SimulationSettings } from './simulate.ts';
export {
  answerText,
  capacityColumns,
  capacityRows,
  capacityRun,
  renderCapacityCsv,
  renderCapacityPage,
  shortageOf,
  type CapacityAnswer,
  type CapacityReport,
  type CapacityRun,
} from './capacity/report.ts';
export { relaxed, resourcesOf, type CapacityResource } from './capacity/relax.ts';
export { capacitySteps, firstEnough, type CapacityStep } from './capacity/search.ts';
export { simulateFleet } from './hosts/simulate-fleet.ts';
export { fleetRouters, type FleetRouter, type FleetRow, type FleetSettings, type HostFailure } from './hosts/types.ts';
export { MetricsWatch } from './live-watch.ts';
export { inferRequest, LiveError, parseLiveInputs, type LiveInput, type LiveRequest } from './live-inputs.ts';
export { runLive, type LiveAnswer, type LiveOptions, type LiveRun } from './live.ts';
export {
  besideSimulator,
  type BesideOptions,
  type BesideSimulator,
  type LiveReport,
  type SimulatedStep,
} from './compare-simulated.ts';
export { differencesOf, type LiveDifferences, type ServiceRow, type StartKind } from './live-differences.ts';
export {
  parseHostScheduler,
  parseOfferedFunction,
  type HostScheduler,
  type OfferedFunction,
  type ScheduledFunction,
} from './live-scheduler.ts';
export { simulateHost, type SimulatedHost } from './live-simulation.ts';
export { ReportBuilder, type ReportContext } from './report/builder.ts';
export { renderReportCsv, renderSweepCsv } from './report/csv.ts';
export { renderReportPage, renderSweepPage, systemsOf } from './report/html.ts';
export * from './report/tables.ts';
export { goodputWanted } from './report/verdict.ts';
export { parseReport, ReportError } from './report/read.ts';
export type {
  FunctionRow,
  GpuRow,
  IntervalRow,
  HostMemoryRow,
  ModelRow,
  PredictionRow,
  Report,
  SettingValue,
  SloRow,
  SweepReport,
  SweepRun,
  Tally,
} from './report/types.ts';
